-- forget.lua: removes a dead owner that has been swept from the roster and the contenders, and
-- deletes the sets that listed its entries. Its record stays: it is a witness of what others met.
-- KEYS[1] lease  KEYS[2] roster  KEYS[3] the owner's heartbeat  KEYS[4] contenders
-- KEYS[5..] the sets
-- ARGV[1] lease token  ARGV[2] owner  ARGV[3] number of members swept: a larger set is kept
-- Result: DONE; FENCED; ALIVE (a heartbeat, or more members than were swept: keep); REFUSED (this
-- user may not UNLINK a set: keep)
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 'FENCED' end
if redis.call('EXISTS', KEYS[3]) == 1 then return 'ALIVE' end
local left = {}
for i = 5, #KEYS do
  local size = redis.pcall('SCARD', KEYS[i])
  if type(size) ~= 'number' or size > tonumber(ARGV[3]) then return 'ALIVE' end
  if size > 0 then left[#left + 1] = KEYS[i] end
end
-- DEL would free a set of millions at once and block the server meanwhile.
if left[1] and type(redis.pcall('UNLINK', unpack(left))) == 'table' then return 'REFUSED' end
redis.pcall('SREM', KEYS[2], ARGV[2])
redis.pcall('SREM', KEYS[4], ARGV[2])
return 'DONE'
