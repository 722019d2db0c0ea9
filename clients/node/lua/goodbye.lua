-- goodbye.lua: a graceful end (after owner.lua). It deletes the heartbeat, so that leftovers are
-- swept at once, and the roster entry too if nothing is left; otherwise it marks that this was not
-- a silent death. Marks of owners that can no longer be swept (the roster was lost) are deleted
-- after a day.
-- ARGV[5] number of claims that could not be handed back
if token == ARGV[2] then redis.call('DEL', KEYS[1]) end
if redis.call('EXISTS', KEYS[3]) == 0 and ARGV[5] == '0' then
  redis.pcall('SREM', KEYS[2], ARGV[1])
else
  local now = tonumber(redis.call('TIME')[1])
  local marks = redis.pcall('HSCAN', KEYS[4], 0, 'MATCH', 'bye:*', 'COUNT', 1000)[2] or {}
  for i = 1, #marks, 2 do
    if now - (tonumber(marks[i + 1]) or 0) > 86400 then redis.pcall('HDEL', KEYS[4], marks[i]) end
  end
  redis.pcall('HSET', KEYS[4], 'bye:' .. ARGV[1], string.format('%.0f', now))
end
-- Wakes the leader; the channel is the heartbeat key of an empty id.
redis.pcall('PUBLISH', string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[1]), ARGV[1])
return reply()
