-- clock.lua: the clock of the server that has the mirror. On a Cluster a bare TIME goes to any.
-- KEYS[1] any of the mirror
-- Result: { seconds, microseconds } as TIME has them
return redis.call('TIME')
