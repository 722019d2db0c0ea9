-- same.lua: the part of a script that sends a look's commands again, and compares their answers. It
-- precedes other files. See replyText for the format of answers.

local function text(n) return string.format('%.0f', n) end

-- Larger values are told by their type, expiry and number alone.
local whole_elements, whole_bytes = 512, 65536
local most_groups, most_consumers = 64, 1000
local most_list = 10000
local size_of = { string = 'STRLEN', hash = 'HLEN', list = 'LLEN', set = 'SCARD', zset = 'ZCARD', stream = 'XLEN' }
local spent = 0 -- about so many microseconds, by probe()

-- ask(command, key, ...) raises what Redis refuses, as text.
local function ask(...)
  local got = redis.pcall(...)
  if type(got) == 'table' and got.err then error('-' .. got.err, 0) end
  return got
end

-- pair(reply, name): a value in a reply of names and values.
local function pair(reply, name)
  for i = 1, #reply, 2 do
    if reply[i] == name then return reply[i + 1] end
  end
end

-- sum(texts) is the same in whatever order: each read makes the server go on rehashing a large hash
-- or set, and SCAN, HGETALL and DUMP then have another order.
local function sum(texts)
  local a, b, c = 0, 0, 0
  for _, t in ipairs(texts) do
    local d = redis.sha1hex(t)
    a, b, c = a + tonumber(string.sub(d, 1, 10), 16), b + tonumber(string.sub(d, 11, 20), 16),
      c + tonumber(string.sub(d, 21, 30), 16)
  end
  spent = spent + 2 * #texts
  return text(a) .. '.' .. text(b) .. '.' .. text(c)
end

-- expiries(key, names): those of fields, which can expire by themselves since Redis 7.4.
local function expiries(key, names)
  local at = redis.pcall('HPEXPIRETIME', key, 'FIELDS', #names, unpack(names))
  if at.err and not string.find(at.err, 'nknown', 1, true) then error('-' .. at.err, 0) end
  return at.err and {} or at
end

local function fields(key)
  local all, names, pairs_of = ask('HGETALL', key), {}, {}
  for i = 1, #all, 2 do
    names[#names + 1] = all[i]
    pairs_of[#pairs_of + 1] = #all[i] .. ':' .. all[i] .. all[i + 1]
  end
  for i, ms in ipairs(expiries(key, names)) do pairs_of[i] = pairs_of[i] .. text(ms) end
  return sum(pairs_of)
end

-- readers(key, ms): what a stream's groups have read, and nil, or why they keep it.
local function readers(key, ms)
  local about = ask('XINFO', 'STREAM', key)
  local last, groups = pair(about, 'last-generated-id'), pair(about, 'groups')
  if groups == 0 then return last end
  if groups > most_groups then return last, 'beyond' end
  local all, consumers = ask('XINFO', 'GROUPS', key), 0
  for _, group in ipairs(all) do consumers = consumers + pair(group, 'consumers') end
  if consumers > most_consumers then return last, 'beyond' end
  local read = {}
  for _, group in ipairs(all) do
    read[#read + 1] = pair(group, 'name') .. text(pair(group, 'pending')) .. pair(group, 'last-delivered-id')
    for _, one in ipairs(ask('XINFO', 'CONSUMERS', key, pair(group, 'name'))) do
      if pair(one, 'idle') < ms then return last, 'used' end
    end
  end
  spent = spent + 10 * #all + consumers
  return last .. '/' .. sum(read)
end

local function content(key, is, n)
  if is == 'string' then
    if n > whole_bytes then return 'large' end
    spent = spent + n / 200
    return redis.sha1hex(ask('GET', key))
  end
  if n > whole_elements then return 'large' end
  local bytes = ask('MEMORY', 'USAGE', key, 'SAMPLES', '0')
  if not bytes then error('-the size of its value is unknown', 0) end
  if bytes > whole_bytes then return 'large' end
  spent = spent + n / 4 + bytes / 200
  if is == 'hash' then return fields(key) end
  if is == 'set' then return sum(ask('SMEMBERS', key)) end
  return redis.sha1hex(ask('DUMP', key))
end

-- member_of(key, is, name): a member's score, or a field's value and expiry.
local function member_of(key, is, name)
  if is == 'zset' or is == 'set' then
    local there = ask(is == 'zset' and 'ZSCORE' or 'SISMEMBER', key, name)
    if not there or there == 0 then return 'none' end
    return is .. ' -1 0 ' .. there
  end
  local n = ask('HSTRLEN', key, name)
  if n > whole_bytes then return is .. ' -1 ' .. n .. ' beyond' end
  local value = ask('HGET', key, name)
  if not value then return 'none' end
  spent = spent + n / 200
  return is .. ' ' .. text(expiries(key, { name })[1] or -1) .. ' ' .. n .. ' ' .. redis.sha1hex(value)
end

-- Questions of bounded cost, for which Redis has no command. A refusal is raised.
local own = {}

-- IDENTITY: what a key, or a member of it, is, in one text: its type, expiry, number of elements or
-- bytes, and content: a digest, or 'large', or 'used' by a reader within ms, or 'beyond' what can
-- be compared. A missing one is 'none'.
function own.IDENTITY(key, ms, member)
  local is = ask('TYPE', key)
  is = type(is) == 'table' and is.ok or is
  if is == 'none' then return is end
  if member then return member_of(key, is, member) end
  local told = is .. ' ' .. text(ask('PEXPIRETIME', key))
  if not size_of[is] then return told .. ' 0 beyond' end
  local n = ask(size_of[is], key)
  local read, why
  if is == 'stream' then
    read, why = readers(key, tonumber(ms))
    told = told .. '/' .. read
  end
  return told .. ' ' .. text(n) .. ' ' .. (why or content(key, is, n))
end

local function bounded(bytes)
  if bytes > whole_bytes then error('-large: it has more than ' .. whole_bytes .. ' bytes to read', 0) end
  spent = spent + bytes / 200
end

-- READ: { the text of a key }, false: it is missing.
function own.READ(key)
  local bytes = ask('STRLEN', key)
  if bytes == 0 and ask('EXISTS', key) == 0 then return false end
  bounded(bytes)
  return { ask('GET', key) }
end

-- FIELDS: what these fields of a hash hold, false: it is missing.
function own.FIELDS(key, ...)
  if ask('HLEN', key) == 0 then return false end
  local bytes = 0
  for _, name in ipairs({ ... }) do bytes = bytes + ask('HSTRLEN', key, name) end
  bounded(bytes)
  return select('#', ...) == 0 and {} or ask('HMGET', key, ...)
end

-- LISTED: 1 if a list has an element, else false. LPOS visits elements one by one: it is bounded.
function own.LISTED(key, element)
  local n = ask('LLEN', key)
  spent = spent + math.min(n, most_list) / 25
  local at = ask('LPOS', key, element, 'MAXLEN', most_list)
  if not at and n > most_list then error('-it has ' .. n .. ' elements, and ' .. most_list .. ' are looked at', 0) end
  return at and 1
end

-- probe(question, key, ...) answers one of own. A text that begins with '-' is an error.
local function probe(question, ...)
  spent = spent + 6
  local _, said = pcall(own[question], ...)
  return said == nil and '-no answer' or said -- nil would end the list of answers
end

-- element(value): the text of this element in an array.
local function element(value)
  if not value then return '_' end
  if type(value) == 'number' then return ':' .. text(value) end
  if type(value) == 'string' then return '#' .. redis.sha1hex(value) end
  local elements = {}
  for i = 1, #value do elements[i] = element(value[i]) end
  return '*' .. table.concat(elements, '|')
end

-- same(want, got): the answer is unchanged; see replyText for the forms of want.
local function same(want, got)
  local form, rest = string.sub(want, 1, 1), string.sub(want, 2)
  if type(got) == 'table' and got.ok then got = got.ok end
  if form == '_' then return got == false end
  if form == ':' then return type(got) == 'number' and text(got) == rest end
  if form == '=' then return type(got) == 'string' and tonumber(got) == tonumber(rest) end
  if form == '$' then return got == rest end
  if form == '#' then return type(got) == 'string' and redis.sha1hex(got) == rest end
  return form == '*' and type(got) == 'table' and not got.err and element(got) == want
end

-- all_same(i): ARGV has from i on, for each observation, the number of words, the answer, and the
-- words of the command or question.
local function all_same(i)
  while ARGV[i] do
    local last = i + tonumber(ARGV[i])
    local again = own[ARGV[i + 2]] and probe or redis.pcall
    if not same(ARGV[i + 1], again(unpack(ARGV, i + 2, last))) then return false end
    i = last + 1
  end
  return true
end
