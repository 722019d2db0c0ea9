-- beats.lua: one page of the heartbeats of online mitras. Read-only.
-- KEYS[1..5] see keys.lua  ARGV[1] cursor  ARGV[2] page size
-- Result: { next cursor, read, unreadable, id, heartbeat, ... }
local page, latest = redis.call('SSCAN', online, ARGV[1], 'COUNT', ARGV[2]), iso(nowms() + ahead)
local out, unreadable = { page[1], tostring(#page[2]), '0' }, 0
for _, id in ipairs(page[2]) do
  local at, bad = heard(id, latest)
  if bad or #id > longest then
    unreadable = unreadable + 1
  elseif at ~= '' then
    out[#out + 1], out[#out + 2] = id, at
  end
end
out[3] = tostring(unreadable)
return out
