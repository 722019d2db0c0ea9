-- settle.lua (after state.lua and mark.lua): adds a queued command's outcome and removes it from
-- the queue, in one step, if the outcome is this instance's to add. Any instance adds an outcome
-- for a command that nobody sent, and instance_lost for one that was sent long ago, or by an
-- earlier life of this instance.
-- KEYS[1] state  KEYS[2] queue  KEYS[3] responses
-- ARGV[1] to ARGV[11]: as of conclude.lua; status may be WAITS: this life has not written it
-- ARGV[12] how long ago, ms  ARGV[13] most entries of the queue  ARGV[14] most for a device
-- ARGV[15..] entries that wait for the device already
-- Result: the status added, by this call or an earlier one; DUPLICATE and GONE as in take.lua
--   TAKEN       another life, or a later attempt of this one, has sent it, or may have
--   WAITS       it has no outcome yet, and nobody sent it
local here, status, said = KEYS[2] .. ' ' .. ARGV[1], ARGV[8], ARGV[9]
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
  if since < tonumber(ARGV[12]) and not former then return 'TAKEN' end
end
if word and not known_here then
  remove(KEYS[2], ARGV[1], ARGV[6])
  return 'DUPLICATE'
end
if not mine and (since or word) then
  local by = word and string.match(life, '/(.*)$') or 'another instance'
  status, said = 'instance_lost', 'sent by ' .. by .. ', which reported no outcome; the device may have executed it'
elseif status == 'WAITS' or status == 'expired' and ms() < tonumber(ARGV[5]) then
  if mine then
    redis.call('DEL', KEYS[1])
    redis.call('XACK', KEYS[2], ARGV[6], ARGV[1])
  end
  return 'WAITS'
elseif status == 'busy' then
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
