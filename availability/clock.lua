-- clock.lua: the clock of the mirror's server, and which life of which server this is. On a
-- Cluster, a bare TIME may reach any node.
-- KEYS[1] any key of the mirror
-- Result: { seconds, microseconds, run id }: the first two as TIME returns them, the last '' if
--   this client may not read it
local now, info = redis.call('TIME'), redis.pcall('INFO', 'server')
now[3] = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
return now
