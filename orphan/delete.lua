-- delete.lua: the body (after guard.lua, same.lua and ripe.lua) that deletes orphans of one rule,
-- all on one server.
--
-- The look that condemned them recorded each of its commands with the answer. This script sends
-- them again, in one atomic step with the delete: a candidate is deleted only if all answers are
-- the same and it is ripe. As many related keys as one step may take are deleted with it. The
-- others follow in later steps, which the candidate's rest allows.
--
-- KEYS[6] the rule's marks  KEYS[7] its rests: name -> JSON  KEYS[8] its bin: id -> JSON
-- KEYS[9] the ids in the bin, by the time (ms) they are dropped
-- KEYS[10] the rule's state  KEYS[11..] every key that is read or deleted
-- ARGV[8..] a JSON object for each candidate:
--   name, mark, grace, since, looked, expires: see ripe.lua
--   follows   related to a deleted candidate: needs a rest instead of a mark
--   seen      answers and their commands: { {answer, command, argument...}... }
--   keys      the whole keys to delete
--   member    { ZREM, SREM or HDEL, key, member } to delete
--   field     when (ms) the member, a field of a hash, expires by itself; missing: never
--   counts    1; 0: already counted
--   rest      written if the candidate is deleted; '': the rest is deleted
--   premises  only in the first: like seen, for the whole batch
--   bin       how long (ms) to keep it aside; missing: it is deleted
--   pass      when the pass began (ms), for the entries of the bin
-- Result: DONE, candidates counted, candidates changed since the look, and the number of keys and
-- members deleted, or reference_lost, which the rule's state records: the answer may be lost.

-- aside(id, key): the name in the bin, in the same slot as key.
local function aside(id, key)
  local tag = string.match(key, '{(.-)}')
  return 'orphan:bin:' .. id .. ':' .. ((tag and tag ~= '') and key or '{' .. key .. '}')
end

-- may(c): nil if this user may do everything needed to delete a candidate, or else the error.
local function may(c)
  for _, key in ipairs(c.keys) do
    local no
    if c.bin then
      local to = aside(ARGV[1] .. ':1', key)
      no = refused('PEXPIRETIME', key) or refused('RENAME', key, to) or refused('PERSIST', to)
    else
      no = refused('UNLINK', key)
    end
    if no then return no end
  end
  if not c.member then return end
  return refused(unpack(c.member)) or c.bin and refused('SET', aside(ARGV[1] .. ':1', c.member[2]), 'x')
end

local going, names, marks, counted, things, changed, bins, no = {}, {}, {}, 0, 0, 0, false, nil
local lost = false
for i = 8, #ARGV do
  local c = cjson.decode(ARGV[i])
  if c.premises and not all_same(c.premises) then
    lost = true
    break
  end
  local ready
  if c.follows then
    ready = recent(c) and redis.call('HEXISTS', KEYS[7], c.name) == 1
  else
    marks[#marks + 1] = c.name
    ready = ripe(c)
  end
  if ready and all_same(c.seen) then
    going[#going + 1] = c
    counted, things, bins = counted + c.counts, things + #c.keys + (c.member and 1 or 0), bins or c.bin
    if c.counts == 1 then names[#names + 1] = c.name end
    no = no or may(c)
  else
    changed = changed + 1
  end
end
no = no or refused('HDEL', KEYS[6], 'x') or refused('HSET', KEYS[7], 'x', 'x') or refused('HDEL', KEYS[7], 'x')
if lost then no = no or refused('HSET', KEYS[10], 'lost_at', '0') end
if bins then no = no or refused('HSET', KEYS[8], 'x', 'x') or refused('ZADD', KEYS[9], '1', 'x') end
for i, want in pairs({ [7] = 'hash', [8] = 'hash', [9] = 'zset', [10] = 'hash' }) do
  local is = kind(KEYS[i])
  if is ~= want and is ~= 'none' then no = no or redis.error_reply(KEYS[i] .. ' is no ' .. want .. ', but a ' .. is) end
end
if no then return no end

local note = lost and 'reference_lost' or text(things)
local result = record(counted, changed, 'keys', names, note)
if result then return result end
if lost then redis.call('HSET', KEYS[10], 'lost_at', text(now)) end

-- put(c, n, entry) adds an entry to the bin that records how to put the thing back.
local function put(c, n, entry)
  entry.id, entry.name, entry.at, entry.pass, entry['until'] = ARGV[1] .. ':' .. n, c.name, now, c.pass, now + c.bin
  redis.call('HSET', KEYS[8], entry.id, cjson.encode(entry))
  redis.call('ZADD', KEYS[9], text(now + c.bin), entry.id)
end

local n = 0
for _, c in ipairs(going) do
  if not c.bin then
    if #c.keys > 0 then redis.call('UNLINK', unpack(c.keys)) end
  else
    for _, key in ipairs(c.keys) do
      n = n + 1
      local entry = { key = key, aside = aside(ARGV[1] .. ':' .. n, key), expires = redis.call('PEXPIRETIME', key) }
      redis.call('RENAME', key, entry.aside)
      redis.call('PERSIST', entry.aside) -- Redis would free an expired value at once, however large
      put(c, n, entry)
    end
    if c.member then
      n = n + 1
      local entry = { key = c.member[2], member = c.member[3], by = c.member[1], expires = c.field or -1,
        aside = aside(ARGV[1] .. ':' .. n, c.member[2]) }
      local value = '1'
      if c.member[1] == 'ZREM' then value = redis.call('ZSCORE', entry.key, entry.member) end
      if c.member[1] == 'HDEL' then value = redis.call('HGET', entry.key, entry.member) end
      redis.call('SET', entry.aside, value)
      put(c, n, entry)
    end
  end
  if c.member then redis.call(unpack(c.member)) end
  if c.rest == '' then
    redis.call('HDEL', KEYS[7], c.name)
  elseif c.rest then
    redis.call('HSET', KEYS[7], c.name, c.rest)
  end
end
if #marks > 0 then redis.call('HDEL', KEYS[6], unpack(marks)) end
return answer('DONE', counted, changed, note)
