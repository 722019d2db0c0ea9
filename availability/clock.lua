-- clock.lua: the clock of the mirror's server. On a Cluster, a bare TIME may reach any node.
-- KEYS[1] any key of the mirror
-- Result: { seconds, microseconds } as TIME returns them
return redis.call('TIME')
