-- extend.lua: the heartbeat's fallback where SET is refused for want of memory (behind owner.lua):
-- PEXPIRE writes no new memory and still works. Extra: 1 if there was a heartbeat to extend.
return reply(redis.call('PEXPIRE', KEYS[1], ARGV[3]))
