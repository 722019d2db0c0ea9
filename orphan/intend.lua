-- intend.lua: the body (after guard.lua and ripe.lua) that notes what is to go. away.lua carries it
-- out on the key's own server, within seconds or never.
--
-- KEYS[6] the rule's marks  KEYS[7] its state  KEYS[8] its intents: id -> JSON
-- ARGV[8..] a JSON object for each candidate: what ripe.lua needs, id, and intent, its text
-- Result: DONE, 0, candidates that are not ripe; nothing is deleted yet.
local no = refused('HSET', KEYS[8], 'x', 'x') or refused('HDEL', KEYS[6], 'x')
if no then return no end
local names, judged, going, not_ripe = {}, {}, {}, 0
for i = 8, #ARGV do
  local c = cjson.decode(ARGV[i])
  judged[#judged + 1] = c.name
  if ripe(c) then
    names[#names + 1], going[#going + 1] = c.name, c
  else
    not_ripe = not_ripe + 1
  end
end
local result = record(0, not_ripe, 'intents', names)
if result then return result end
for _, c in ipairs(going) do redis.call('HSET', KEYS[8], c.id, c.intent) end
redis.call('HDEL', KEYS[6], unpack(judged))
return answer('DONE', 0, not_ripe)
