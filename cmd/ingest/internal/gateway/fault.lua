-- fault.lua: stores a device's last fault. A full hash drops an arbitrary other one.
-- KEYS[1] hash
-- ARGV[1] imei  ARGV[2] fault, JSON  ARGV[3] most fields
if not redis.call('HGET', KEYS[1], ARGV[1]) and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  local some = redis.call('HSCAN', KEYS[1], '0', 'COUNT', '10')[2]
  if some[1] then redis.call('HDEL', KEYS[1], some[1]) end
end
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
