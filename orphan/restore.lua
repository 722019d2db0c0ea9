-- restore.lua: puts one thing back that a rule has put into its bin, on one server.
-- KEYS[1] the rule's bin  KEYS[2] where it lies  KEYS[3] the key, or the key whose member it was
-- ARGV[1] its entry in the bin  ARGV[2] what KEYS[3] is: key, zset, set or hash  ARGV[3] the member
-- ARGV[4] when the key expires (ms), -1: never
-- Result: restored, taken (the name is in use again), gone (the bin has dropped it), expired
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return 'gone'
end
if ARGV[2] == 'key' then
  local now = redis.call('TIME')
  if tonumber(ARGV[4]) > 0 and tonumber(ARGV[4]) <= tonumber(now[1]) * 1000 then return 'expired' end
  if redis.call('RENAMENX', KEYS[2], KEYS[3]) == 0 then return 'taken' end
  if tonumber(ARGV[4]) > 0 then
    redis.call('PEXPIREAT', KEYS[3], ARGV[4])
  else
    redis.call('PERSIST', KEYS[3])
  end
else
  local value, added = redis.call('GET', KEYS[2]), 0
  if ARGV[2] == 'zset' then
    added = redis.call('ZADD', KEYS[3], 'NX', value, ARGV[3])
  elseif ARGV[2] == 'set' then
    added = redis.call('SADD', KEYS[3], ARGV[3])
  else
    added = redis.call('HSETNX', KEYS[3], ARGV[3], value)
  end
  if added == 0 then return 'taken' end
  redis.call('UNLINK', KEYS[2])
end
redis.call('ZREM', KEYS[1], ARGV[1])
return 'restored'
