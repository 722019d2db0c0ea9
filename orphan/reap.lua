-- reap.lua: the body (after guard.lua, ripe.lua, same.lua and take.lua) that removes orphans of one
-- rule, all on the guard's own server.
--
-- The look that condemned them recorded each of its commands with the answer. This script sends
-- them again, in one atomic step with the delete: a candidate goes only if all answers are the
-- same, and its mark is ripe.
--
-- KEYS[6] the rule's marks  KEYS[7] its state  KEYS[8] its bin: id -> JSON
-- KEYS[9] the ids in the bin, by the time (ms) they are dropped  KEYS[10..] every key that is used
-- ARGV[8..] a JSON object for each candidate: what ripe.lua and take.lua need, and
--   id        in the bin
--   seen      see all_same
--   entry     for the bin, and until when (ms) it keeps it; missing: no bin
--   premises  only in the first: like seen, for the whole batch
-- Result: DONE, candidates removed, candidates changed since the look, and reference_lost, or
-- nothing.

-- may(c): nil if this user may do everything needed to remove a candidate, or else the error.
local function may(c)
  local no
  if not c.member and c.aside then
    no = refused('RENAME', c.key, c.aside) or refused('PERSIST', c.aside)
  elseif not c.member then
    no = refused('UNLINK', c.key)
  else
    no = refused(unpack(c.member)) or c.aside and refused('SET', c.aside, 'x')
  end
  if c.entry then no = no or refused('HSET', KEYS[8], 'x', 'x') or refused('ZADD', KEYS[9], '1', 'x') end
  return no or nil
end

local going, names, judged, changed, lost, no = {}, {}, {}, 0, false, nil
for i = 8, #ARGV do
  local c = cjson.decode(ARGV[i])
  if c.premises and not all_same(c.premises) then
    lost = true
    break
  end
  judged[#judged + 1] = c.name
  if ripe(c) and all_same(c.seen) then
    going[#going + 1], names[#names + 1] = c, c.name
    no = no or may(c)
  else
    changed = changed + 1
  end
end
no = no or refused('HDEL', KEYS[6], 'x') or refused('HDEL', KEYS[7], 'x')
for i, want in pairs({ [7] = 'hash', [8] = 'hash', [9] = 'zset' }) do
  local is = kind(KEYS[i])
  if is ~= want and is ~= 'none' then no = no or redis.error_reply(KEYS[i] .. ' is no ' .. want .. ', but a ' .. is) end
end
if no then return no end
local note = lost and 'reference_lost' or nil
local result = record(#going, changed, 'keys', names, note)
if result then return result end
if lost then redis.call('HDEL', KEYS[7], 'looked') end -- the answer may be lost: the chain ends
for _, c in ipairs(going) do
  take(c)
  if c.entry then
    redis.call('HSET', KEYS[8], c.id, c.entry)
    redis.call('ZADD', KEYS[9], text(c['until']), c.id)
  end
end
if #judged > 0 then redis.call('HDEL', KEYS[6], unpack(judged)) end
return answer('DONE', #going, changed, note)
