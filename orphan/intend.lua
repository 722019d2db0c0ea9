-- intend.lua: the body (after guard.lua and ripe.lua) that records intents to delete on other
-- servers of a Cluster. There the guard cannot be asked in one step with the delete. So it is
-- asked here, the intent is recorded, and away.lua carries it out on the other server, within
-- seconds or never.
--
-- KEYS[6] the rule's marks  KEYS[7] its rests: name -> JSON  KEYS[8] its intents: id -> JSON
-- ARGV[8..] a JSON object for each candidate: the fields of ripe.lua, and
--   follows   related to a deleted candidate: needs a rest instead of a mark
--   rest      written if there are related keys: even after a crash they are counted with their
--             candidate
--   intents   { {id, text}... }
-- Result: DONE, 0, candidates that are not ripe; nothing is deleted yet.
local no = refused('HSET', KEYS[8], 'x', 'x') or refused('HSET', KEYS[7], 'x', 'x') or refused('HDEL', KEYS[6], 'x')
if no then return no end
local names, marks, rests, fields, not_ripe = {}, {}, {}, {}, 0
for i = 8, #ARGV do
  local c = cjson.decode(ARGV[i])
  local ready
  if c.follows then
    ready = recent(c) and redis.call('HEXISTS', KEYS[7], c.name) == 1
  else
    marks[#marks + 1] = c.name
    ready = ripe(c)
  end
  if ready then
    names[#names + 1] = c.name
    if c.rest then
      rests[#rests + 1], rests[#rests + 2] = c.name, c.rest
    end
    for _, intent in ipairs(c.intents) do
      fields[#fields + 1], fields[#fields + 2] = intent[1], intent[2]
    end
  else
    not_ripe = not_ripe + 1
  end
end
local result = record(0, not_ripe, 'intents', names)
if result then return result end
for i = 1, #fields, 2 do redis.call('HSET', KEYS[8], fields[i], fields[i + 1]) end
for i = 1, #rests, 2 do redis.call('HSET', KEYS[7], rests[i], rests[i + 1]) end
if #marks > 0 then redis.call('HDEL', KEYS[6], unpack(marks)) end
return answer('DONE', 0, not_ripe)
