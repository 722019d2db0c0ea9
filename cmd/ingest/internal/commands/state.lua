-- state.lua: shared beginning of claim.lua, settle.lua and (after the janitor's guard) sweep.lua.
--
-- commands:state:<id> is '<word> <life> <stream> <entry>'. word is 'sent', or the status of the
-- outcome. life is '<attempt>.<token>/<instance>' of the process that wrote it. Each attempt to
-- send or settle a queued command has a higher number: a call of an earlier attempt was given up
-- and lands late, and the command may have been sent since. The id belongs to this entry; another
-- entry with that id is a duplicate.
--
-- A command that was sent is also a pending entry of the group: stream and mark are one key, so
-- Redis cannot lose the one and keep the other.

local hour, day = 3600000, 86400000

-- known(key) -> word, life, 'stream entry'; nil if the key does not exist. An unreadable value
-- counts as an outcome.
local function known(key)
  local t = redis.call('TYPE', key)
  t = type(t) == 'table' and t.ok or t
  if t == 'none' then return nil end
  if t ~= 'string' then return 'unknown', '', '' end
  local word, life, at = string.match(redis.call('GET', key), '^(%S+) (%S+) (.+)$')
  return word or 'unknown', life or '', at or ''
end

-- remember(key, word, life, stream, entry, left) keeps the state until an hour after the command
-- expires, in left ms.
local function remember(key, word, life, stream, entry, left)
  if not (left > 0) then left = 0 end -- in this form NaN becomes 0
  redis.call('SET', key, word .. ' ' .. life .. ' ' .. stream .. ' ' .. entry, 'PX', string.format('%.0f', math.min(left, day) + hour))
end

-- report(responses, cap, id, imei, instance, status, text, ambiguous) adds an outcome.
local function report(responses, cap, id, imei, instance, status, text, ambiguous)
  local outcome = { 'id', id, 'imei', imei, 'instance', instance, 'status', status, 'text', text }
  if ambiguous then outcome[11], outcome[12] = 'ambiguous', 'true' end
  redis.call('XADD', responses, 'MAXLEN', '~', cap, '*', unpack(outcome))
end

local function remove(stream, entry, group)
  redis.pcall('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
end

-- same(life, mine) -> whether both are one process'; whether life's attempt is the later one
local function same(life, mine)
  local n, of = string.match(life, '^(%d+)%.(.+)$')
  local m, my = string.match(mine, '^(%d+)%.(.+)$')
  return of == my, of == my and tonumber(n) > tonumber(m)
end

-- marked(stream, group, entry) -> ms since it was sent; nil if it was not
local function marked(stream, group, entry)
  local pending = redis.pcall('XPENDING', stream, group, entry, entry, 1)
  if pending.err then
    if string.find(pending.err, '^NOGROUP') then return nil end
    error(pending.err)
  end
  return pending[1] and pending[1][3]
end

local function there(stream, entry) return redis.call('XRANGE', stream, entry, entry)[1] end

local function ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
