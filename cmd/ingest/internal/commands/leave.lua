-- leave.lua: an instance that stops deletes its stream if it is empty.
-- KEYS[1] stream
-- Result: 1 deleted | 0 not
if redis.call('XLEN', KEYS[1]) > 0 then return 0 end
return redis.call('DEL', KEYS[1])
