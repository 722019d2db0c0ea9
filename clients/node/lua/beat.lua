-- beat.lua: the heartbeat (after settings.lua and owner.lua). When memory is full, and SET refused,
-- it is sent again as a script with the flag allow-oom: heartbeat and record need little.
-- ARGV[9] the owner's GRACE, ms  ARGV[10] '1': its entries should be in the registry
-- Extra: bits of what this user may not do, and scripts silently omit: 1 maintain the roster, the
-- index or the record, 2 notify other owners.
local now = assert_life(true)
local at = text(now)
local lost, emptied = tell_grace(KEYS[4], ARGV[9], at, string.sub(ARGV[2], 1, 16))
if redis.call('EXISTS', KEYS[5]) == 1 then
  -- writers without scripts do not clear that record; see found_gone
  if emptied then redis.pcall('HDEL', KEYS[4], 'emptied') end
elseif ARGV[10] == '1' then
  lost = at
  if witness_says('last') then redis.pcall('HSET', KEYS[4], 'lost', at) end
end
local rights = may('SADD', KEYS[2], 'x') and may('SREM', KEYS[2], 'x') and may('HGET', KEYS[6], 'x') and may('HSET', KEYS[6], 'x', 'x')
if ARGV[4] == '1' then rights = rights and may('SADD', KEYS[3], 'x') and may('SREM', KEYS[3], 'x') end
local tells = may('PUBLISH', ARGV[8] .. KEYS[1], 'x')
-- An owner that does not hear this itself listens at another server, or not at all.
if tells then publish(ARGV[1], '/') end
return reply((rights and 0 or 1) + (tells and 0 or 2), nil, lost)
