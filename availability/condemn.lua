-- condemn.lua: the body, after guard.lua, that condemns mitras who are online and silent. From
-- then on their heartbeats get `not online`, so that no app believes it is online while the
-- source sets it offline. The mark is the version the mitra was judged at.
-- KEYS[6..10] see keys.lua
-- ARGV[8..] `<ms of silence that is too long> <id>`
-- Result: DONE, how many were condemned, how many are no longer silent, and if nobody could be
--   condemned, the reason: unseeded or listening.
local list, marks, kept, note = {}, {}, 0, nil
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
  local silent = not bad and at < iso(now - stale) and not excused(id, now, tonumber(stale))
  local v = redis.call('HSTRLEN', version, id) < 17 and redis.call('HGET', version, id)
  if v and silent and redis.call('SISMEMBER', online, id) == 1 then
    list[#list + 1] = id
    marks[#marks + 1], marks[#marks + 2] = id, v
  else
    kept = kept + 1
  end
end
local no = refused('HSET', condemned, 'x', 'x')
if no then return no end
local result = record(#list, kept, 'mitras', list, note)
if result then return result end
if #marks > 0 then redis.call('HSET', condemned, unpack(marks)) end
return answer('DONE', #list, kept, note)
