-- cpu.lua: processor time used by the server. Read-only.
-- KEYS[1] the witness, which selects the server of a Cluster
-- Result: user and system time in s, as in INFO; { '', '' } if this user may not run INFO
local info = redis.pcall('INFO', 'cpu')
return { told(info, 'used_cpu_user', '^[%d.]+'), told(info, 'used_cpu_sys', '^[%d.]+') }
