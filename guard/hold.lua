-- hold.lua: the leader's own hold, raised when too many owners fell silent at once (after
-- witness.lua).
-- KEYS[1] lease  KEYS[2] witness
-- ARGV[1] lease token  ARGV[2] shortest time since the last hold of this kind, ms
-- Result: 1 the witness restarts; 0 too soon, or the lease is not this term's
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local now = math.floor(server_us() / 1000)
local last = count(redis.call('HGET', KEYS[2], 'mass_failure'))
if last and last <= now and now - last < tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[2], 'mass_failure', text(now))
hold(KEYS[2], now, 'mass_failure')
return 1
