-- snapshot.lua: stores a snapshot unless the computation was cancelled: a setting has changed, or
-- its token expired.
-- KEYS[1] availability:snapshot  KEYS[2] availability:snapshot:computing
-- ARGV[1] the computation's token  ARGV[2] snapshot, or '' to extend a token that is still
--   computing
-- ARGV[3] TTL of a snapshot in ms  ARGV[4] TTL of the token in ms
-- Result: 1 done, 0 cancelled
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then return redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('DEL', KEYS[2])
return 1
