-- extend.lua: the heartbeat's fallback when memory is full and SET refused (after owner.lua):
-- PEXPIRE needs no new memory.
-- Extra: 1 if there was a heartbeat to extend.
return reply(redis.call('PEXPIRE', KEYS[1], ARGV[3]))
