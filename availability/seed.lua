-- seed.lua: the steps of a seeding. Only one runs at a time. If somebody empties the server, its
-- token is lost with everything else, so half a seeding never passes for a whole one.
-- KEYS[1..5] see keys.lua  KEYS[6] mitras:seeding
-- ARGV[1] step: begin, extend, certify or give_up  ARGV[2] token  ARGV[3] ms after which others
--   may seed
-- Result: the time of the token, as iso.lua formats it; '' if the token is gone or, for begin,
--   another one is set. Certify stores that time: a seeding is as recent as its start.
local step, token, ttl = ARGV[1], ARGV[2], ARGV[3]
local held = redis.call('GET', KEYS[6]) or ''
if step == 'begin' then
  local left = redis.call('PTTL', KEYS[6])
  if left > 0 and left <= tonumber(ttl) then return '' end -- any other TTL was not set by a seeding
  local at = iso(nowms())
  redis.call('SET', KEYS[6], token .. ' ' .. at, 'PX', ttl)
  return at
end
local at = string.match(held, ' (.*)$') or ''
if held ~= token .. ' ' .. at then return '' end
if step == 'extend' then
  redis.call('PEXPIRE', KEYS[6], ttl)
  return at
end
if step == 'certify' then redis.call('SET', seeded, at) end
redis.call('DEL', KEYS[6])
return at
