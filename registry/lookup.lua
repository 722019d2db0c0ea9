-- lookup.lua: the instance that holds a device, and whether its heartbeat exists. Read-only.
-- KEYS[1] registry  ARGV[1] IMEI  ARGV[2] what heartbeat keys begin with
-- The heartbeat's key follows from the entry and cannot be declared; it lies in the registry's own
-- slot, as all keys of a partition do.
-- Result: { owner, 1 live | 0 not }; nil where nobody holds it
local owner = redis.call('HGET', KEYS[1], ARGV[1])
if not owner then return false end
return { owner, redis.call('EXISTS', ARGV[2] .. owner) }
