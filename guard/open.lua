-- open.lua: opens a term in the log, so that no batch of an older one can be recorded after it.
-- KEYS[1] log  KEYS[2] lease
-- ARGV[1] epoch  ARGV[2] lease token  ARGV[3] leader
-- Result: { 'DONE', '' }; { 'FENCED', '' }: the lease is not this term's;
--         { 'STALE', newest id }: the log has a higher epoch, draw one above it.
if redis.pcall('GET', KEYS[2]) ~= ARGV[2] then return { 'FENCED', '' } end
local id = ARGV[1] .. '-0'
local asked = redis.call('XRANGE', KEYS[1], id, id)
if asked[1] then -- ours, if the token is: the reply was lost
  for _, v in ipairs(asked[1][2]) do
    if v == ARGV[2] then return { 'DONE', '' } end
  end
end
local ok = redis.pcall('XADD', KEYS[1], id, 'leader', ARGV[3], 'term', ARGV[2])
if type(ok) == 'table' then -- an error
  if not string.find(ok.err, 'equal or smaller') then return ok end
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return { 'STALE', info[i + 1] } end
  end
end
return { 'DONE', '' }
