-- Ends a lease that would not end by itself: it gets the expiry that it should
-- have. A key of another type was never a lease, and may be somebody's: it is
-- renamed.
--
-- KEYS[1]  the lease
-- KEYS[2]  what a key of another type is called afterwards
-- ARGV[1]  the value that was seen there all the time, or as much as is read of it
-- ARGV[2]  the lease TTL, ms
-- ARGV[3]  what stands for the value of a key of another type
-- ARGV[4]  how many bytes are read of a value
--
-- Returns 1 if the expiry was set, 2 if the key was renamed; 0 if there is
-- nothing to do: another value, or an expiry within the TTL, for instance
-- because another waiter was first, or KEYS[2] is taken.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
  end
  if ARGV[1] ~= ARGV[3] or redis.call('EXISTS', KEYS[2]) == 1 then
    return 0
  end
  redis.call('RENAME', KEYS[1], KEYS[2])
  return 2
end
if not value or string.sub(value, 1, tonumber(ARGV[4])) ~= ARGV[1] then
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if left ~= -1 and left <= tonumber(ARGV[2]) then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
