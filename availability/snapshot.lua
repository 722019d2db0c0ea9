-- snapshot.lua: stores a snapshot, unless the computation was called off: a setting has changed, or
-- it took too long.
-- KEYS[1] availability:snapshot  KEYS[2] availability:snapshot:computing
-- ARGV[1] the computation's token  ARGV[2] snapshot  ARGV[3] ms for which it is good
-- Result: 1 stored, 0 not
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('DEL', KEYS[2])
return 1
