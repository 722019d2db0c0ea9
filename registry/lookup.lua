-- lookup.lua: the instances that hold ids, and whether their heartbeats exist (after former.lua).
-- Read-only.
-- KEYS[1] registry  KEYS[2] beats  KEYS[3..] on a Cluster: heartbeats of the presumed owners
-- ARGV[1] the asking instance  ARGV[2] ms of its newest beat, see record.lua
-- ARGV[3] prefix of heartbeat keys; '': heartbeats do not matter  ARGV[4] '1': on a Cluster
-- ARGV[5..] ids, at most 1000
-- A heartbeat's key follows from the entry. While its slot moves, a server of a Cluster may have
-- the entry but not the heartbeat, and answers correctly only for declared keys: TRYAGAIN.
-- Result: { owners, nil for who has none; those whose heartbeats were looked for; 1 live | 0 not,
-- for each of these }. Declare the heartbeats of the other owners and ask again.
local wrong = former(KEYS[2], ARGV[1], ARGV[2])
if wrong then return wrong end
local owners = redis.pcall('HMGET', KEYS[1], unpack(ARGV, 5))
if owners.err then return owners end
if ARGV[3] == '' then return { owners, {}, {} } end
local declared, met, asked, live = {}, {}, {}, {}
for i = 3, #KEYS do declared[KEYS[i]] = true end
for i = 1, #owners do
  local owner = owners[i]
  if owner and not met[owner] and (ARGV[4] ~= '1' or declared[ARGV[3] .. owner]) then
    met[owner] = true
    asked[#asked + 1] = owner
    live[#live + 1] = redis.call('EXISTS', ARGV[3] .. owner)
  end
end
return { owners, asked, live }
