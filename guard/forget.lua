-- forget.lua: takes a dead owner off the roster, last of all it left.
-- KEYS[1] lease  KEYS[2] witness  KEYS[3] the owner's heartbeat  KEYS[4] its index  KEYS[5] roster
-- ARGV[1] lease token  ARGV[2] owner
-- Result: DONE; FENCED; ALIVE (a heartbeat, or an index that is not empty: keep)
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 'FENCED' end
if redis.call('EXISTS', KEYS[3]) == 1 or redis.call('EXISTS', KEYS[4]) == 1 then return 'ALIVE' end
redis.pcall('SREM', KEYS[5], ARGV[2])
redis.call('HDEL', KEYS[2], 'bye:' .. ARGV[2])
return 'DONE'
