-- restore.lua: restores one thing from a rule's bin, on one server.
-- KEYS[1] its key in the bin  KEYS[2] the key, or the key that had the member
-- ARGV[1] the command that removed the member: ZREM, SREM or HDEL; '': it was the key itself
-- ARGV[2] the member
-- ARGV[3] when the key, or the member, expires (ms), -1: never
-- ARGV[4] when the key that had the member expired (ms): one made anew gets the same
-- ARGV[5] until when the bin keeps it (ms)
-- Result: restored, taken (the name is in use again), dropped, gone before its time, expired, key
-- expired
local now, expires, key_expires = tonumber(redis.call('TIME')[1]) * 1000, tonumber(ARGV[3]), tonumber(ARGV[4])
if redis.call('EXISTS', KEYS[1]) == 0 then return now >= tonumber(ARGV[5]) and 'dropped' or 'gone' end
if expires > 0 and expires <= now then return 'expired' end
if ARGV[1] == '' then
  if redis.call('RENAMENX', KEYS[1], KEYS[2]) == 0 then return 'taken' end
  if expires > 0 then
    redis.call('PEXPIREAT', KEYS[2], ARGV[3])
  else
    redis.call('PERSIST', KEYS[2])
  end
else
  local kind = redis.call('TYPE', KEYS[2])
  kind = type(kind) == 'table' and kind.ok or kind
  if kind ~= 'none' and kind ~= ({ ZREM = 'zset', SREM = 'set', HDEL = 'hash' })[ARGV[1]] then return 'taken' end
  if kind == 'none' and key_expires > 0 and key_expires <= now then return 'key expired' end
  local value, added = redis.call('GET', KEYS[1]), 0
  if ARGV[1] == 'ZREM' then
    added = redis.call('ZADD', KEYS[2], 'NX', value, ARGV[2])
  elseif ARGV[1] == 'SREM' then
    added = redis.call('SADD', KEYS[2], ARGV[2])
  else
    added = redis.call('HSETNX', KEYS[2], ARGV[2], value)
    if added == 1 and expires > 0 then
      local done = redis.pcall('HPEXPIREAT', KEYS[2], ARGV[3], 'FIELDS', '1', ARGV[2])
      if done.err then -- unsupported or not permitted: undo, or it would live for ever
        redis.call('HDEL', KEYS[2], ARGV[2])
        return done
      end
    end
  end
  if added == 0 then return 'taken' end
  if kind == 'none' and key_expires > 0 then redis.call('PEXPIREAT', KEYS[2], ARGV[4]) end
  redis.call('UNLINK', KEYS[1])
end
return 'restored'
