-- open.lua: opens a term in the log, so that no batch of an older term can be recorded after it.
--
-- A log that takes no record of any term is set aside under another name, and the term opens in a
-- new one: a key of another type, or a stream with an id that is a year ahead of the server's
-- clock. No term has such an epoch (lease/epoch.lua), and none above the largest id exists. What
-- fences is then the lease's token, which each batch compares: no older term holds it.
-- KEYS[1] log  KEYS[2] lease  KEYS[3] what a log set aside is called: a name of this epoch alone
-- ARGV[1] epoch  ARGV[2] lease token  ARGV[3] leader
-- Result: { 'DONE', '' }; { 'ASIDE', why }: done, in a new log; { 'FENCED', '' }: the lease is not
--         this term's; { 'STALE', id }: the log has this id, or somebody has taken KEYS[3]: draw a
--         higher epoch.
if redis.pcall('GET', KEYS[2]) ~= ARGV[2] then return { 'FENCED', '' } end
local id = ARGV[1] .. '-0'

local function says(reply, text) return string.find(reply.err or '', text, 1, true) end

-- begin(...) writes the term's opening record -> the id, or an error.
local function begin(...) return redis.pcall('XADD', KEYS[1], id, 'leader', ARGV[3], 'term', ARGV[2], ...) end

local why
local asked = redis.pcall('XRANGE', KEYS[1], id, id)
if says(asked, 'WRONGTYPE') then
  why = 'it is a key of another type'
elseif asked.err then
  return asked
elseif asked[1] then -- the reply was lost; it is ours if it has our token
  local f, v = {}, asked[1][2]
  for i = 1, #v, 2 do f[v[i]] = v[i + 1] end
  if f.term == ARGV[2] then return { f.aside and 'ASIDE' or 'DONE', f.aside or '' } end
end

if not why then
  local ok = begin()
  if type(ok) ~= 'table' then return { 'DONE', '' } end
  if not says(ok, 'equal or smaller') and not says(ok, 'exhausted') then return ok end
  local newest, info = '0-0', redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then newest = info[i + 1] end
  end
  local seconds, epoch = tonumber(redis.call('TIME')[1]), tonumber(string.match(newest, '^%d+'))
  if epoch and epoch <= (seconds + 366 * 86400) * 1000000 then return { 'STALE', newest } end
  why = 'its newest id is ' .. newest
end
if redis.call('EXISTS', KEYS[3]) == 1 then return { 'STALE', id } end -- RENAME would overwrite it
local moved = redis.pcall('RENAME', KEYS[1], KEYS[3])
if moved.err then return moved end
local ok = begin('aside', why)
if type(ok) == 'table' then return ok end
return { 'ASIDE', why }
