-- forget.lua: takes a dead owner off the roster, last of all it left.
-- KEYS[1] lease  KEYS[2] witness  KEYS[3] roster  KEYS[4] the owner's heartbeat  KEYS[5..] what it
-- left
-- ARGV[1] lease token  ARGV[2] owner
-- Result: DONE; FENCED; ALIVE (a heartbeat, or something that it left: keep)
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 'FENCED' end
for i = 4, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then return 'ALIVE' end
end
redis.pcall('SREM', KEYS[3], ARGV[2])
redis.call('HDEL', KEYS[2], 'bye:' .. ARGV[2])
return 'DONE'
