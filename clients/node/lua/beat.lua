-- beat.lua: the heartbeat (after settings.lua and owner.lua).
-- ARGV[5] the owner's GRACE, ms  ARGV[6] '1': since its last beat this owner was refused while its
-- keys moved
-- Extra: bits of what this user may not do, and scripts silently omit: 1 maintain the roster or the
-- index, 2 notify other owners.
local at = assert_life()
local lost, emptied = tell_grace(KEYS[4], ARGV[5], at, string.sub(ARGV[2], 1, 16))
if emptied then -- writers without scripts do not clear that record; see found_gone
  exists = redis.call('EXISTS', KEYS[5])
  if exists == 1 then redis.pcall('HDEL', KEYS[4], 'emptied') end
end
if ARGV[6] == '1' then lost = tell_gap(KEYS[4], at) end
local rights = may('SADD', KEYS[2], 'x') and may('SREM', KEYS[2], 'x')
if ARGV[4] == '1' then rights = rights and may('SADD', KEYS[3], 'x') and may('SREM', KEYS[3], 'x') end
return reply((rights and 0 or 1) + (may('PUBLISH', KEYS[1], 'x') and 0 or 2), nil, lost)
