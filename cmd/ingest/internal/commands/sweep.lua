-- sweep.lua: the body (after guard.lua and state.lua) that answers a dead instance's commands
-- with instance_lost, removes them from its stream, and deletes the stream once it is empty.
-- KEYS[6] stream  KEYS[7] responses  KEYS[8..] the state of each item, or the stream itself if the
-- entry has no usable id
-- ARGV[8..] entries, in the same order; '0-0', which never exists, only deletes an empty stream
-- Result: DONE, how many entries were removed, how many were already gone. The record lists
-- commands by id, and entries without a usable id by entry.
local group, most = '@group', @most
local stream, responses = KEYS[6], KEYS[7]
local function usable(key, want)
  local k = kind(key)
  return k == want or k == 'none'
end
if not (usable(KEYS[1], 'stream') and usable(stream, 'stream') and usable(responses, 'stream')) then
  return redis.error_reply('WRONGTYPE eviction log, commands or responses is of another type: nothing answered')
end

local no = refused('XDEL', stream, '0-1') or refused('DEL', stream) or refused('XADD', responses, '*', 'x', 'x') or
  refused('SET', KEYS[8], 'x')
if no then return no end

local gone, going, names = 0, {}, {}
for i = 8, #ARGV do
  local entry = there(stream, ARGV[i])
  if entry then
    local f, v = {}, entry[2]
    for j = 1, #v, 2 do
      local name = v[j] -- the text is not needed, and may be large
      if name == 'id' or name == 'imei' or name == 'expires' or name == 'queue' then f[name] = string.sub(v[j + 1], 1, 129) end
    end
    going[#going + 1] = { at = ARGV[i], key = KEYS[i], f = f }
    names[#names + 1] = KEYS[i] ~= stream and f.id or ARGV[i]
  elseif ARGV[i] ~= '0-0' then
    gone = gone + 1
  end
end

local result = record(#going, gone, 'commands', names)
if result then return result end
for _, c in ipairs(going) do
  local word, life, at
  if c.key ~= stream then word, life, at = known(c.key) end
  local sent = word == 'sent' and at == stream .. ' ' .. c.at
  local added = tonumber(string.match(c.at, '^%d+'))
  local expires = tonumber(c.f.expires or '') or added + (c.f.queue == 'true' and day or 60000)
  local unsent = not word and not marked(stream, group, c.at)
  if c.key ~= stream and (sent or not word) then
    report(responses, most, c.f.id, string.sub(c.f.imei or '', 1, 32), ARGV[6], 'instance_lost',
      unsent and 'the instance died before it was sent' or 'the instance died; the device may have executed it')
    remember(c.key, 'instance_lost', 'janitor', stream, c.at, expires - now)
  end
  remove(stream, c.at, group)
end
if redis.call('XLEN', stream) == 0 then redis.call('DEL', stream) end
return answer('DONE', #going, gone)
