-- waiting.lua: returns a page of the queue like XRANGE, whatever its size, with only a command's
-- fields, cut to a command's size. Read-only. It reads one entry at a time, since each may be
-- large.
-- KEYS[1] queue
-- ARGV[1] from, as for XRANGE  ARGV[2] most entries  ARGV[3] most bytes of a field
-- Result: { { entry, field, value, ... }, ... }
local known = { id = true, imei = true, text = true, codec = true, expires = true, queue = true }
local page, from = {}, ARGV[1]
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
