-- claim.lua (after state.lua): marks a command as sent, if it may be sent now. One life gets SEND
-- for it, and may get it again.
-- KEYS[1] state  KEYS[2] stream  KEYS[3] registry
-- ARGV[1] entry  ARGV[2] life  ARGV[3] instance  ARGV[4] imei  ARGV[5] expires, unix ms  ARGV[6]
-- group  ARGV[7] its consumer
-- Result: { verdict, ms until it expires, owner }
--   SEND        marked: send it now
--   EXPIRED     too late
--   MOVED       the registry names another owner
--   TAKEN       another life, or a later attempt of this one, has sent it, or may have
--   DUPLICATE   the id has an outcome or belongs to another entry: the entry was removed
--   GONE        the entry has left its stream
local here = KEYS[2] .. ' ' .. ARGV[1]
if not there(KEYS[2], ARGV[1]) then return { 'GONE', 0, '' } end
local left = tonumber(ARGV[5]) - ms()
local sent = marked(KEYS[2], ARGV[6], ARGV[1])
local word, life, at = known(KEYS[1])
if sent or word then
  if not sent and (word ~= 'sent' or at ~= here) then
    remove(KEYS[2], ARGV[1], ARGV[6])
    return { 'DUPLICATE', 0, '' }
  end
  local mine, superseded = word == 'sent' and at == here
  if mine then mine, superseded = same(life, ARGV[2]) end
  if not mine or superseded then return { 'TAKEN', left, '' } end
else
  if left <= 0 then return { 'EXPIRED', left, '' } end
  local owner = redis.pcall('HGET', KEYS[3], ARGV[4])
  if type(owner) == 'string' and owner ~= ARGV[3] then return { 'MOVED', left, owner } end
end
-- The writes that may be refused come first.
local made = redis.pcall('XGROUP', 'CREATE', KEYS[2], ARGV[6], '0')
if made.err and not string.find(made.err, '^BUSYGROUP') then return made end
remember(KEYS[1], 'sent', ARGV[2], KEYS[2], ARGV[1], left)
if not sent then redis.call('XCLAIM', KEYS[2], ARGV[6], ARGV[7], 0, ARGV[1], 'FORCE', 'JUSTID') end
return { 'SEND', left, '' }
