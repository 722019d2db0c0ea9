-- forget.lua: takes a dead owner off the roster and the contenders, last of all it left, and with
-- it the sets that named what it left, when all of that was swept.
-- KEYS[1] lease  KEYS[2] witness  KEYS[3] roster  KEYS[4] the owner's heartbeat  KEYS[5] contenders
-- KEYS[6..] the sets
-- ARGV[1] lease token  ARGV[2] owner  ARGV[3] the members that were swept: a set of more is kept
-- Result: DONE; FENCED; ALIVE (a heartbeat, or more than was swept: keep); REFUSED (a set that this
-- user may not UNLINK: keep)
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 'FENCED' end
if redis.call('EXISTS', KEYS[4]) == 1 then return 'ALIVE' end
local left = {}
for i = 6, #KEYS do
  local size = redis.pcall('SCARD', KEYS[i])
  if type(size) ~= 'number' or size > tonumber(ARGV[3]) then return 'ALIVE' end
  if size > 0 then left[#left + 1] = KEYS[i] end
end
-- DEL would free a set of millions at once, and hold the server for that long.
if left[1] and type(redis.pcall('UNLINK', unpack(left))) == 'table' then return 'REFUSED' end
redis.pcall('SREM', KEYS[3], ARGV[2])
redis.pcall('SREM', KEYS[5], ARGV[2])
redis.pcall('HDEL', KEYS[2], 'bye:' .. ARGV[2])
return 'DONE'
