-- Gives a lease that would not end by itself the expiry that it should have.
--
-- KEYS[1]  the lease
-- ARGV[1]  the value that was seen there all the time
-- ARGV[2]  the lease TTL, ms
-- ARGV[3]  what stands for the value of a key of another type
--
-- Returns 1 if the expiry was set; 0 if there is nothing to do: another value,
-- or an expiry within the TTL, for instance because another waiter was first.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
  end
  value = ARGV[3]
end
if value ~= ARGV[1] then
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if left ~= -1 and left <= tonumber(ARGV[2]) then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
