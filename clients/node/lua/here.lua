-- here.lua: is this where Control has just written the heartbeat, and may Client write here? (after
-- owner.lua). Not former() alone: of a new process a former primary, like any other server, has no
-- record.
if token ~= ARGV[2] then
  return redis.error_reply('READONLY Client and Control are not at the same primary and database: it lacks the heartbeat of ' .. ARGV[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return reply()
