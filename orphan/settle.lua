-- settle.lua: ends one intent, and counts what it did. Asked again at once, it answers the same.
-- KEYS[1] the rule's intents  KEYS[2] witness  KEYS[3] the rule's bin  KEYS[4] the rule's state
-- ARGV[1] id of the intent  ARGV[2] candidates that went: 0 or 1  ARGV[3] entry of the bin, '' if
-- there is none  ARGV[4] until when that stands (ms)
-- Result: 1; 0: somebody else has settled it
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return redis.call('HGET', KEYS[4], 'settled') == ARGV[1] and 1 or 0
end
redis.call('HSET', KEYS[4], 'settled', ARGV[1])
if ARGV[2] ~= '0' then redis.call('HINCRBY', KEYS[2], 'evicted_total', ARGV[2]) end
if ARGV[3] ~= '' then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', redis.call('TIME')[1] .. '000')
  redis.call('ZADD', KEYS[3], ARGV[4], ARGV[3])
end
return 1
