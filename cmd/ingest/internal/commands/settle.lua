-- settle.lua (after state.lua): adds a command's outcome and removes its entry from the stream, in
-- one step, unless the id has an outcome. For a command that an earlier life of this instance sent,
-- the outcome is instance_lost. In the queue, any instance adds an outcome for a command that
-- nobody sent, and instance_lost for one that another sent long ago.
-- KEYS[1] state  KEYS[2] stream  KEYS[3] responses  KEYS[4] queue, if status is QUEUED
-- ARGV[1] to ARGV[6]: as of claim.lua; expires is not below 0
-- ARGV[7] id  ARGV[8] status  ARGV[9] text  ARGV[10] cap of responses, entries  ARGV[11] '1': the
-- text may be something other than the answer
-- ARGV[12] how long ago, ms; 0: this is the stream of the instance
-- ARGV[13] most entries of the queue  ARGV[14] most for a device
-- ARGV[15..] entries that wait for the device already; if status is QUEUED, the codec
-- Status QUEUED: nothing was written to the device, and the command moves to the queue; text is its
-- own. Status WAITS: this life has not written it.
-- Result: the status added, by this call or an earlier one; DUPLICATE, GONE, TAKEN: see claim.lua
--   WAITS       it has no outcome yet, and nobody sent it
local here, status, said = KEYS[2] .. ' ' .. ARGV[1], ARGV[8], ARGV[9]
local long = tonumber(ARGV[12])
local word, life, at = known(KEYS[1])
if not there(KEYS[2], ARGV[1]) then
  redis.pcall('XACK', KEYS[2], ARGV[6], ARGV[1])
  -- the reply to this life was lost
  if word and word ~= 'sent' and life == ARGV[2] and at == here then return word end
  return 'GONE'
end
local since = marked(KEYS[2], ARGV[6], ARGV[1])
local known_here = word == 'sent' and at == here
local mine, superseded = known_here
if mine then mine, superseded = same(life, ARGV[2]) end
if superseded then return 'TAKEN' end
if since and not mine then
  local former = known_here and string.match(life, '/(.*)$') == ARGV[3]
  if since < long and not former then return 'TAKEN' end
end
if word and not known_here then
  remove(KEYS[2], ARGV[1], ARGV[6])
  return 'DUPLICATE'
end
if not mine and (since or word) then
  local by = word and string.match(life, '/(.*)$') or 'another instance'
  status, said = 'instance_lost', 'sent by ' .. by .. ', which reported no outcome; the device may have executed it'
elseif status == 'QUEUED' then
  redis.call('XADD', KEYS[4], '*', 'id', ARGV[7], 'imei', ARGV[4], 'text', said, 'codec', ARGV[15], 'expires', ARGV[5])
  if mine then redis.call('DEL', KEYS[1]) end
  remove(KEYS[2], ARGV[1], ARGV[6])
  return status
elseif status == 'WAITS' or long > 0 and status == 'expired' and ms() < tonumber(ARGV[5]) then
  if mine then
    redis.call('DEL', KEYS[1])
    redis.call('XACK', KEYS[2], ARGV[6], ARGV[1])
  end
  return 'WAITS'
elseif status == 'busy' and long > 0 then
  if mine then return 'TAKEN' end
  local ahead = 0
  for i = 15, #ARGV do
    if there(KEYS[2], ARGV[i]) then ahead = ahead + 1 end
  end
  if ahead < tonumber(ARGV[14]) and redis.call('XLEN', KEYS[2]) <= tonumber(ARGV[13]) then return 'WAITS' end
end
-- The first write is the one that may be refused: memory is full, or the key has another type.
report(KEYS[3], ARGV[10], ARGV[7], ARGV[4], ARGV[3], status, said, ARGV[11] == '1' and status == ARGV[8])
remember(KEYS[1], status, ARGV[2], KEYS[2], ARGV[1], tonumber(ARGV[5]) - ms())
remove(KEYS[2], ARGV[1], ARGV[6])
return status
