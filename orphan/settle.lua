-- settle.lua: the body (after guard.lua) that ends intents whose outcome is known, and counts the
-- deletes with the record in the log.
-- KEYS[6] the rule's intents  KEYS[7] its rests  KEYS[8] its bin: id -> JSON
-- KEYS[9] the ids in the bin, by the time (ms) they are dropped
-- ARGV[8..] a JSON object for each intent:
--   id, name  of the intent, and of the candidate
--   away      it was moved away; missing: it stays
--   counts    1: the candidate itself; 0: counted with it
--   entry     for the bin, if it was moved away   until  when it is dropped (ms)
--   forget    delete the rest: the candidate stays, or nothing is left of it
-- Result: DONE, candidates deleted, and the number of keys and members, without those that
-- somebody else has settled.
local no = refused('HDEL', KEYS[6], 'x') or refused('HDEL', KEYS[7], 'x') or refused('HSET', KEYS[8], 'x', 'x') or
  refused('ZADD', KEYS[9], '1', 'x')
if no then return no end
local ends, names, counted, things = {}, {}, 0, 0
for i = 8, #ARGV do
  local c = cjson.decode(ARGV[i])
  if redis.call('HEXISTS', KEYS[6], c.id) == 1 then
    ends[#ends + 1] = c
    if c.away then
      counted, things = counted + c.counts, things + 1
      if c.counts == 1 then names[#names + 1] = c.name end
    end
  end
end
local note = text(things)
local result = record(counted, 0, 'keys', names, note)
if result then return result end
for _, c in ipairs(ends) do
  redis.call('HDEL', KEYS[6], c.id)
  if c.forget then redis.call('HDEL', KEYS[7], c.name) end
  if c.away then
    redis.call('HSET', KEYS[8], c.id, c.entry)
    redis.call('ZADD', KEYS[9], text(c['until']), c.id)
  end
end
return answer('DONE', counted, 0, note)
