-- delete.lua: the body (behind guard.lua, same.lua and ripe.lua) that deletes orphans of one rule, all on one
-- server.
--
-- The look that condemned them has remembered each of its commands with the answer. They are sent
-- again here, in one atomic step with the delete: a candidate goes only if all answers are the
-- same, and if it is ripe.
--
-- KEYS[6] the rule's marks  KEYS[7] the rule's bin  KEYS[8..] every key that is read or deleted
-- ARGV[8..] a JSON object for each candidate:
--   name, mark, grace, since, looked, expires: see ripe.lua
--   seen      answers and their commands: { {answer, command, argument...}... }
--   keys      the keys that go, as far as they are keys
--   member    { ZREM, SREM or HDEL, key, member } that goes
--   field     when (ms) the member expires by itself, a field of a hash; missing: never
--   premises  only in the first: like seen, for the whole batch
--   bin       for how long (ms) it is kept aside; missing: it is deleted
--   pass      when the pass began (ms), for the entries of the bin
-- Result: DONE, candidates that went, candidates that are no longer as they were, and the number of
-- keys and members that went, or reference_lost.

-- aside(id, key): the name in the bin, which has the same slot as key.
local function aside(id, key)
  local tag = string.match(key, '{(.-)}')
  return 'orphan:bin:' .. id .. ':' .. ((tag and tag ~= '') and key or '{' .. key .. '}')
end

local going, names, marks, things, changed, no = {}, {}, {}, 0, 0, nil
local lost = false
for i = 8, #ARGV do
  local c = cjson.decode(ARGV[i])
  if c.premises and not all_same(c.premises) then
    lost = true
    break
  end
  marks[#marks + 1] = c.name
  if ripe(c) and all_same(c.seen) then
    going[#going + 1], names[#names + 1] = c, c.name
    things = things + #c.keys + (c.member and 1 or 0)
    for _, key in ipairs(c.keys) do
      if c.bin then
        local to = aside(ARGV[1] .. ':1', key)
        no = no or refused('PEXPIRETIME', key) or refused('RENAME', key, to) or refused('PEXPIREAT', to, '1')
      else
        no = no or refused('UNLINK', key)
      end
    end
    if c.member then
      no = no or refused(unpack(c.member))
      if c.bin then
        local to = aside(ARGV[1] .. ':1', c.member[2])
        no = no or refused('SET', to, 'x') or refused('PEXPIREAT', to, '1')
      end
    end
    if c.bin then no = no or refused('ZADD', KEYS[7], '1', 'x') or refused('ZREMRANGEBYSCORE', KEYS[7], '1', '1') end
  else
    changed = changed + 1
  end
end
no = no or refused('HDEL', KEYS[6], 'x')
local bin = kind(KEYS[7])
if bin ~= 'zset' and bin ~= 'none' then no = no or redis.error_reply(KEYS[7] .. ' is not a bin, but a ' .. bin) end
if no then return no end

local note = lost and 'reference_lost' or text(things)
local result = record(#going, changed, 'keys', names, note)
if result then return result end

-- put(c, key, n): moves a key into the bin; the entry says how to put it back.
local function put(c, n, entry)
  local until_ms = now + c.bin
  entry.id, entry.name, entry.at, entry.pass = ARGV[1] .. ':' .. n, c.name, now, c.pass
  redis.call('PEXPIREAT', entry.aside, text(until_ms))
  redis.call('ZADD', KEYS[7], text(until_ms), cjson.encode(entry))
end

local n = 0
for _, c in ipairs(going) do
  if not c.bin then
    if #c.keys > 0 then redis.call('UNLINK', unpack(c.keys)) end
  else
    redis.call('ZREMRANGEBYSCORE', KEYS[7], '-inf', text(now))
    for _, key in ipairs(c.keys) do
      n = n + 1
      local entry = { key = key, aside = aside(ARGV[1] .. ':' .. n, key), expires = redis.call('PEXPIRETIME', key) }
      redis.call('RENAME', key, entry.aside)
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
end
if #marks > 0 then redis.call('HDEL', KEYS[6], unpack(marks)) end
return answer('DONE', #going, changed, note)
