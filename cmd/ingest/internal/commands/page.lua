-- page.lua: returns entries of a stream like XRANGE, whatever their size, with only these fields,
-- cut. Read-only. It reads one entry at a time, since each may be large.
-- KEYS[1] stream
-- ARGV[1] from, as for XRANGE  ARGV[2] most entries  ARGV[3] most bytes of a field
-- ARGV[4..] fields
-- Result: { { entry, field, value, ... }, ... }
local known, page, from = {}, {}, ARGV[1]
for i = 4, #ARGV do known[ARGV[i]] = true end
for _ = 1, tonumber(ARGV[2]) do
  local read = redis.pcall('XRANGE', KEYS[1], from, '+', 'COUNT', 1)
  if read.err then return read end
  local entry = read[1]
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
