-- intend.lua: the body (behind guard.lua and ripe.lua) that notes what is about to go on other servers of a
-- Cluster. There the guard cannot be asked in one step with the delete. So it is asked here, the
-- intent is noted, and away.lua does on the other server what is intended, within seconds or never.
--
-- KEYS[6] the rule's marks  KEYS[7] the rule's intents: id -> JSON
-- ARGV[8..] a JSON object for each candidate: what ripe.lua wants, and intents { {id, text}... }
-- Result: DONE, 0, candidates whose mark is not what the look saw; nothing has gone yet.
local no = refused('HSET', KEYS[7], 'x', 'x') or refused('HDEL', KEYS[6], 'x')
if no then return no end
local names, marks, fields, not_ripe = {}, {}, {}, 0
for i = 8, #ARGV do
  local c = cjson.decode(ARGV[i])
  marks[#marks + 1] = c.name
  if ripe(c) then
    names[#names + 1] = c.name
    for _, intent in ipairs(c.intents) do
      fields[#fields + 1], fields[#fields + 2] = intent[1], intent[2]
    end
  else
    not_ripe = not_ripe + 1
  end
end
local result = record(0, not_ripe, 'intents', names)
if result then return result end
for i = 1, #fields, 2 do redis.call('HSET', KEYS[7], fields[i], fields[i + 1]) end
redis.call('HDEL', KEYS[6], unpack(marks))
return answer('DONE', 0, not_ripe)
