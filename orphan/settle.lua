-- settle.lua: the body (after guard.lua) that ends intents whose outcome is known, and counts the
-- deletes with the record in the log.
-- KEYS[6] the rule's intents  KEYS[7] its bin: id -> JSON
-- KEYS[8] the ids in the bin, by the time (ms) they are dropped
-- ARGV[8..] a JSON object for each intent:
--   id, name  of the intent, and of the candidate
--   entry     for the bin, if it was moved away, and until when (ms) it keeps it; missing: it stays
-- Result: DONE, candidates deleted, without those that somebody else has settled.
local no = refused('HDEL', KEYS[6], 'x') or refused('HSET', KEYS[7], 'x', 'x') or refused('ZADD', KEYS[8], '1', 'x')
if no then return no end
local ends, names = {}, {}
for i = 8, #ARGV do
  local c = cjson.decode(ARGV[i])
  if redis.call('HEXISTS', KEYS[6], c.id) == 1 then
    ends[#ends + 1] = c
    if c.entry then names[#names + 1] = c.name end
  end
end
local result = record(#names, 0, 'keys', names)
if result then return result end
for _, c in ipairs(ends) do
  redis.call('HDEL', KEYS[6], c.id)
  if c.entry then
    redis.call('HSET', KEYS[7], c.id, c.entry)
    redis.call('ZADD', KEYS[8], string.format('%.0f', c['until']), c.id)
  end
end
return answer('DONE', #names, 0)
