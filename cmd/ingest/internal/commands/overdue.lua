-- overdue.lua: returns the queued commands that were sent long ago and have no outcome. It removes
-- the marks of entries that somebody deleted: an entry's id never returns.
-- KEYS[1] queue
-- ARGV[1] group  ARGV[2] how long ago, ms
-- Result: { unix ms, entry, ... }
local t = redis.call('TIME')
local overdue = { string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)) }
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[2], '-', '+', 1000)
if pending.err and not string.find(pending.err, '^NOGROUP') then return pending end
for _, p in ipairs(pending) do
  if redis.call('XRANGE', KEYS[1], p[1], p[1])[1] then
    overdue[#overdue + 1] = p[1]
  else
    redis.call('XACK', KEYS[1], ARGV[1], p[1])
  end
end
return overdue
