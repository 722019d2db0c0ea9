-- silent.lua: one page of the online mitras who have been silent for too long. Read-only.
-- KEYS[1..5] see keys.lua  KEYS[6] the janitor's witness
-- ARGV[1] cursor  ARGV[2] page size  ARGV[3] ms of silence that is too long
-- ARGV[4] ms of silence that is only overdue
-- Result: strings: { next cursor, now (ms), listened (ms), read, unreadable, overdue or silent,
--   id, ... }, or the error UNSEEDED.
if not whole() then return redis.error_reply('UNSEEDED the mirror is not whole') end
local now, stale = nowms(), tonumber(ARGV[3])
local cutoff, overdue, latest = iso(now - stale), iso(now - ARGV[4]), iso(now + ahead)
local page = redis.call('SSCAN', online, ARGV[1], 'COUNT', ARGV[2])
local ids, unreadable, late = page[2], 0, 0
local function text(n) return string.format('%.0f', n) end
local out = { page[1], text(now), text(listened(KEYS[6], now)), text(#ids), '0', '0' }
for _, id in ipairs(ids) do
  local at, bad = heard(id, latest)
  if bad or #id > longest then
    unreadable = unreadable + 1
  elseif at < overdue and not excused(id, now, stale) then
    late = late + 1
    if at < cutoff then out[#out + 1] = id end
  end
end
out[5], out[6] = text(unreadable), text(late)
return out
