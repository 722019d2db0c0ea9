-- names.lua: returns the ids of the commands in a stream. Read-only. It reads one entry at a
-- time, since each may be large.
-- KEYS[1] stream
-- ARGV[1] from, as for XRANGE  ARGV[2] most entries  ARGV[3] most bytes of an id
-- Result: entry, id, entry, id, ...; '' for an id that is missing or longer
local found, from = {}, ARGV[1]
for _ = 1, tonumber(ARGV[2]) do
  local page = redis.pcall('XRANGE', KEYS[1], from, '+', 'COUNT', 1)
  if page.err then return page end
  local entry = page[1]
  if not entry then break end
  local id, v = '', entry[2]
  for i = 1, #v, 2 do
    if v[i] == 'id' then id = #v[i + 1] <= tonumber(ARGV[3]) and v[i + 1] or '' end
  end
  found[#found + 1], found[#found + 2] = entry[1], id
  from = '(' .. entry[1]
end
return found
