-- clock.lua: the clock of the mirror's server. On a Cluster, a bare TIME may reach any node.
-- KEYS[1] any key of the mirror
-- Result: as of TIME
return redis.call('TIME')
