-- claim.lua (after state.lua and mark.lua): marks a queued command as sent, if it may be sent now.
-- One life gets SEND for it, and may get it again.
-- KEYS[1] state  KEYS[2] queue  KEYS[3] registry
-- ARGV[1] to ARGV[6]: as of take.lua  ARGV[7] the group's consumer
-- Result: as of take.lua, and
--   TAKEN       another life, or a later attempt of this one, has sent it, or may have
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
  remember(KEYS[1], 'sent', ARGV[2], KEYS[2], ARGV[1], left)
else
  if left <= 0 then return { 'EXPIRED', left, '' } end
  local owner = redis.pcall('HGET', KEYS[3], ARGV[4])
  if type(owner) == 'string' and owner ~= ARGV[3] then return { 'MOVED', left, owner } end
  -- The writes that may be refused come first.
  local made = redis.pcall('XGROUP', 'CREATE', KEYS[2], ARGV[6], '0')
  if made.err and not string.find(made.err, '^BUSYGROUP') then return made end
  remember(KEYS[1], 'sent', ARGV[2], KEYS[2], ARGV[1], left)
end
if not sent then redis.call('XCLAIM', KEYS[2], ARGV[6], ARGV[7], 0, ARGV[1], 'FORCE', 'JUSTID') end
return { 'SEND', left, '' }
