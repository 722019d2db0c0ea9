-- lookup.lua: the instance that holds an id, and whether its heartbeat exists. Read-only.
-- KEYS[1] registry  KEYS[2] on a Cluster: the heartbeat of the presumed owner; optional
-- ARGV[1] id  ARGV[2] prefix of heartbeat keys  ARGV[3] '1': on a Cluster
-- The heartbeat's key follows from the entry. While its slot moves, a server of a Cluster may have
-- the entry but not the heartbeat, and answers correctly only for declared keys: TRYAGAIN.
-- Result: { owner, 1 live | 0 not }; { owner } for another owner than presumed: declare its
--         heartbeat and retry; nil if nobody holds it
local owner = redis.call('HGET', KEYS[1], ARGV[1])
if not owner then return false end
local heartbeat = ARGV[2] .. owner
if ARGV[3] == '1' and KEYS[2] ~= heartbeat then return { owner } end
return { owner, redis.call('EXISTS', heartbeat) }
