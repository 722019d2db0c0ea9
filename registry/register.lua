-- register.lua: registers ids of one owner; the newest claim wins (after owner.lua).
-- ARGV[9..] ids, at most 1000

-- word(id) encodes an id for a message; see word in dispute.go.
local function word(id)
  if id == '' then return '%' end
  if not string.find(id, '[%c%% ]') and string.sub(id, 1, 1) ~= '/' then return id end
  id = string.gsub(id, '[%c%% ]', function(c) return string.format('%%%02X', string.byte(c)) end)
  return (string.gsub(id, '^/', '%%2F'))
end

assert_life()
local before = redis.call('HMGET', KEYS[5], unpack(ARGV, 9))
local me, fields = ARGV[1], {}
for i = 9, #ARGV do
  fields[2 * i - 17] = ARGV[i]
  fields[2 * i - 16] = me
end
found_gone()
redis.call('HSET', KEYS[5], unpack(fields))
index('SADD', ARGV, 9)

-- Notify former owners of the ids that they lost. One that misses it notices at its next check.
local moved = {}
for i = 1, #before do
  local was = before[i]
  if was and was ~= '' and was ~= me then
    local theirs = moved[was] or {}
    theirs[#theirs + 1] = word(ARGV[8 + i])
    moved[was] = theirs
  end
end
for was, theirs in pairs(moved) do publish(was, table.concat(theirs, ' ')) end
return reply()
