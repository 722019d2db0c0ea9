-- condemn.lua: the body, after guard.lua, that judges the silent once more, right before the source
-- sets them offline. It writes nothing: a heartbeat that comes later overrules it, see apply.lua.
-- KEYS[6..9] see keys.lua
-- ARGV[8..] `<ms of silence that is too long> <id>`
-- Result: DONE, how many are silent, how many no longer are (then nobody goes offline), and if
--   nobody can be judged, the reason: unseeded or listening.
local list, kept, note = {}, 0, nil
local latest = iso(now + ahead)
if not whole() then note = 'unseeded' end
for i = 8, #ARGV do
  if note then break end
  local stale, id = string.match(ARGV[i], '^(%d+) (.+)$')
  if now - since < tonumber(stale) then -- heartbeats were not heard for all of that time
    note = 'listening'
    break
  end
  local at, bad = heard(id, latest)
  if not bad and at < iso(now - stale) and not excused(id, now, tonumber(stale)) then
    list[#list + 1] = id
  else
    kept = kept + 1
  end
end
if note or kept > 0 then list = {} end
local result = record(#list, kept, 'mitras', list, note)
if result then return result end
return answer('DONE', #list, kept, note)
