-- goodbye.lua: a graceful end (behind owner.lua): the heartbeat goes, so that what is left is swept
-- at once; the roster entry too if nothing is left, else a mark that this was no silent death.
-- Marks of owners that nobody can sweep any more (the roster was lost) go after a day.
-- ARGV[5] how many claims could not be handed back
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
-- The leader looks at once: on the channel of nobody's heartbeat.
redis.pcall('PUBLISH', string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[1]), ARGV[1])
return reply()
