-- take.lua (after state.lua): marks a command as sent, if it may be sent now. The same life gets
-- the same answer again.
-- KEYS[1] state  KEYS[2] stream  KEYS[3] registry
-- ARGV[1] entry  ARGV[2] life  ARGV[3] instance  ARGV[4] imei  ARGV[5] expires, unix ms  ARGV[6]
-- group
-- Result: { verdict, ms until it expires, owner }
--   SEND        marked: send it now
--   EXPIRED     too late
--   MOVED       the registry names another owner
--   LOST        an earlier life of the instance marked it, or may have: marks last for an hour
--   DUPLICATE   the id has an outcome or belongs to another entry: the entry was removed
--   GONE        the entry has left its stream
if not there(KEYS[2], ARGV[1]) then return { 'GONE', 0, '' } end
local left = tonumber(ARGV[5]) - ms()
local word, life, at = known(KEYS[1])
if word == 'sent' and at == KEYS[2] .. ' ' .. ARGV[1] then
  return { life == ARGV[2] and 'SEND' or 'LOST', left, '' }
elseif word then
  remove(KEYS[2], ARGV[1], ARGV[6])
  return { 'DUPLICATE', 0, '' }
end
local added = tonumber(string.match(ARGV[1], '^%d+'))
-- a mark would have expired by now
if left <= -hour and ms() - added >= hour then return { 'LOST', left, '' } end
if left <= 0 then return { 'EXPIRED', left, '' } end
local owner = redis.pcall('HGET', KEYS[3], ARGV[4])
if type(owner) == 'string' and owner ~= ARGV[3] then return { 'MOVED', left, owner } end
remember(KEYS[1], 'sent', ARGV[2], KEYS[2], ARGV[1], left)
return { 'SEND', left, '' }
