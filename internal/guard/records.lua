-- records.lua: stores and deletes records for the leader. Their owners may write them too, so each
-- is compared with what the leader read.
-- KEYS[1] lease  KEYS[2] beats  KEYS[3] the name afterwards of a key of another type in its place
-- ARGV[1] lease token  ARGV[2..] triples: owner, record read ('': none), record to store ('': none)
-- Result: { FENCED }, or { DONE } with the owners whose records have changed since
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return { 'FENCED' } end
local wrong = redis.pcall('HLEN', KEYS[2])
if type(wrong) == 'table' then
  if not string.find(wrong.err, 'WRONGTYPE', 1, true) or redis.call('EXISTS', KEYS[3]) == 1 then return wrong end
  redis.call('RENAME', KEYS[2], KEYS[3])
end
local answer = { 'DONE' }
for i = 2, #ARGV, 3 do
  if (redis.call('HGET', KEYS[2], ARGV[i]) or '') ~= ARGV[i + 1] then
    answer[#answer + 1] = ARGV[i]
  elseif ARGV[i + 2] == '' then
    redis.call('HDEL', KEYS[2], ARGV[i])
  else
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
  end
end
return answer
