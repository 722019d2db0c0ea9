-- heads.lua: records of the eviction log without what they list: of a million evicted entries these
-- are kilobytes instead of megabytes. Read-only.
-- KEYS[1] log  ARGV[1] XRANGE | XREVRANGE  ARGV[2] from  ARGV[3] to  ARGV[4] how many at most
-- Result: a list of { id, field, value, ... }
local heads = {}
for i, r in ipairs(redis.call(ARGV[1], KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4])) do
  local head, v = { r[1] }, r[2]
  for j = 1, #v, 2 do
    if #v[j + 1] <= 256 then
      head[#head + 1] = v[j]
      head[#head + 1] = v[j + 1]
    end
  end
  heads[i] = head
end
return heads
