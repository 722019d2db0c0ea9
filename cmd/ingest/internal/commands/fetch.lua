-- fetch.lua: reads the next entry like XREADGROUP, whatever its size, and returns only a
-- command's fields, cut to a command's size.
-- KEYS[1] stream
-- ARGV[1] group  ARGV[2] consumer  ARGV[3] the pending entry to read after; '>': the next new one
-- ARGV[4] most bytes of a field
-- Result: { entry, field, value, ... }; { entry } if deleted from its stream; nil if none is left
local page = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[1], ARGV[3])
local entry = page and page[1] and page[1][2][1]
if not entry then return false end
local known = { id = true, imei = true, text = true, codec = true, expires = true, queue = true }
local found, v = { entry[1] }, entry[2] or {}
for i = 1, #v, 2 do
  if known[v[i]] then
    found[#found + 1] = v[i]
    found[#found + 1] = string.sub(v[i + 1], 1, tonumber(ARGV[4]) + 1)
  end
end
return found
