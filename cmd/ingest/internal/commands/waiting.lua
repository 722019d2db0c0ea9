-- waiting.lua: returns a page of the queue, with only a command's fields, cut to a command's size.
-- From the start it first returns which commands were sent long ago and have no outcome. One that
-- was deleted from the queue leaves no mark behind.
-- KEYS[1] queue
-- ARGV[1] from, as for XRANGE  ARGV[2] most entries  ARGV[3] most bytes of a field  ARGV[4] group
-- ARGV[5] how long ago, ms
-- Result: { unix ms, { entry, ... }, { entry, field, value, ... }, ... }
local t = redis.call('TIME')
local overdue = {}
local page = { string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)), overdue }
local from = ARGV[1]
if from == '-' then
  local pending = redis.pcall('XPENDING', KEYS[1], ARGV[4], 'IDLE', ARGV[5], '-', '+', 1000)
  if pending.err and not string.find(pending.err, '^NOGROUP') then return pending end
  for _, p in ipairs(pending) do
    if redis.call('XRANGE', KEYS[1], p[1], p[1])[1] then
      overdue[#overdue + 1] = p[1]
    else
      redis.call('XACK', KEYS[1], ARGV[4], p[1])
    end
  end
end
local known = { id = true, imei = true, text = true, codec = true, expires = true, queue = true }
for _ = 1, tonumber(ARGV[2]) do
  local entry = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 1)[1]
  if not entry then break end
  local found, v = { entry[1] }, entry[2]
  for i = 1, #v, 2 do
    if known[v[i]] then
      found[#found + 1] = v[i]
      found[#found + 1] = string.sub(v[i + 1], 1, tonumber(ARGV[3]) + 1)
    end
  end
  page[#page + 1] = found
  from = '(' .. entry[1]
end
return page
