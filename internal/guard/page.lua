-- page.lua: a page of a scan, without what is too long to name an id or an instance.
-- KEYS[1] hash or set  ARGV[1] HSCAN or SSCAN  ARGV[2] cursor  ARGV[3] COUNT
-- ARGV[4] the most bytes of an element
-- Result: { next cursor, how many were left out, what was found: of a hash field, value, ... }
local page = redis.pcall(ARGV[1], KEYS[1], ARGV[2], 'COUNT', ARGV[3])
if page.err then return page end
local items, width, most = page[2], ARGV[1] == 'HSCAN' and 2 or 1, tonumber(ARGV[4])
local found, left = {}, 0
for i = 1, #items, width do
  if #items[i] <= most and #items[i + width - 1] <= most then
    found[#found + 1] = items[i]
    if width == 2 then found[#found + 1] = items[i + 1] end
  else
    left = left + 1
  end
end
return { page[1], left, found }
