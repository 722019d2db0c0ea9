-- take.lua: (after same.lua) how a key or member goes.
-- take(c): c.key goes, or what c.member says: { ZREM, SREM or HDEL, key, member }. c.aside: it is
-- moved there; missing: it is deleted.
local function take(c)
  if c.member then
    if c.aside then
      local value = '1'
      if c.member[1] == 'ZREM' then value = redis.call('ZSCORE', c.key, c.member[3]) end
      if c.member[1] == 'HDEL' then value = redis.call('HGET', c.key, c.member[3]) end
      redis.call('SET', c.aside, value)
    end
    redis.call(unpack(c.member))
  elseif c.aside then
    redis.call('RENAME', c.key, c.aside)
    redis.call('PERSIST', c.aside) -- Redis would free an expired value at once, however large
  else
    redis.call('UNLINK', c.key)
  end
end
