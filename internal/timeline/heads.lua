-- heads.lua: records of a stream without long fields: of a log of a million evicted entries,
-- kilobytes instead of megabytes. It reads one record at a time, since each may be large.
-- Read-only.
-- KEYS[1] stream  ARGV[1] XRANGE | XREVRANGE  ARGV[2] from  ARGV[3] to  ARGV[4] how many at most
-- Result: a list of { id, field, value, ... }
local heads, from = {}, ARGV[2]
for i = 1, tonumber(ARGV[4]) do
  local page = redis.pcall(ARGV[1], KEYS[1], from, ARGV[3], 'COUNT', 1)
  if page.err then return page end
  local r = page[1]
  if not r then break end
  local head, v = { r[1] }, r[2]
  for j = 1, math.min(#v, 64), 2 do
    if #v[j] <= 256 and #v[j + 1] <= 256 then
      head[#head + 1] = v[j]
      head[#head + 1] = v[j + 1]
    end
  end
  heads[i] = head
  from = '(' .. r[1]
end
return heads
