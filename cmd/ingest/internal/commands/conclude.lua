-- conclude.lua (after state.lua): adds a command's outcome and removes its entry from the stream,
-- in one step. It refuses a second outcome for an id. If an earlier life of the instance may have
-- sent the command, the outcome is instance_lost.
-- KEYS[1] state  KEYS[2] stream  KEYS[3] responses  KEYS[4] queue, if status is QUEUED
-- ARGV[1] entry  ARGV[2] life  ARGV[3] instance  ARGV[4] imei  ARGV[5] expires, unix ms  ARGV[6]
-- group
-- ARGV[7] id  ARGV[8] status  ARGV[9] text  ARGV[10] cap of responses, entries  ARGV[11] '1': the
-- text may be something other than the answer  ARGV[12] codec, if status is QUEUED
-- If status is QUEUED, nothing was written to the device: the command moves to the queue, and text
-- is its own.
-- Result: the status added, by this call or an earlier one; DUPLICATE and GONE as in take.lua
local here, status, said = KEYS[2] .. ' ' .. ARGV[1], ARGV[8], ARGV[9]
local word, life, at = known(KEYS[1])
-- the reply to this life was lost
if word and word ~= 'sent' and life == ARGV[2] and at == here then return word end
if not there(KEYS[2], ARGV[1]) then return 'GONE' end
if word and (word ~= 'sent' or at ~= here) then
  remove(KEYS[2], ARGV[1], ARGV[6])
  return 'DUPLICATE'
end
if word and life ~= ARGV[2] then
  status, said = 'instance_lost', 'sent before the instance restarted; the device may have executed it'
end
if not word and status == 'instance_lost' and said == '' then
  said = 'expired too long ago to know whether it was sent; the device may have executed it'
end
if status == 'QUEUED' then
  redis.call('XADD', KEYS[4], '*', 'id', ARGV[7], 'imei', ARGV[4], 'text', said, 'codec', ARGV[12], 'expires', ARGV[5])
  if word then redis.call('DEL', KEYS[1]) end
  remove(KEYS[2], ARGV[1], ARGV[6])
  return status
end
-- The first write is the one that may be refused: memory is full, or the key has another type.
report(KEYS[3], ARGV[10], ARGV[7], ARGV[4], ARGV[3], status, said, ARGV[11] == '1' and status == ARGV[8])
remember(KEYS[1], status, ARGV[2], KEYS[2], ARGV[1], tonumber(ARGV[5]) - ms())
remove(KEYS[2], ARGV[1], ARGV[6])
return status
