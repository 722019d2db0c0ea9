-- settings.lua: what owners report to the witness. Prefix of beat.lua, boot.lua and witness.lua.

-- Two days. No setting of ours is longer.
local most = 172800000

-- count(v) returns the number in a field of the witness, or nil if the witness cannot have written
-- it. To Lua "nan", "1e300" and "-5" are numbers too, and NaN compares as never held.
local function count(v) return v and #v < 16 and string.match(v, '^%d+$') and tonumber(v) or nil end

-- brief(v) returns the beginning of a field: anybody can write any number of bytes there, and what
-- a script returns has to fit into its caller's memory.
local function brief(v) return v and string.sub(v, 1, 64) end

-- larger(a, b): the larger of two GRACE, as the witness has them: strings, or false.
local function larger(a, b)
  a, b = count(a) or 0, count(b) or 0
  if a > most then a = 0 end
  if b > most then b = 0 end
  return string.format('%.0f', math.max(a, b))
end

-- boot_time(v, now) returns v if it can be the time in a boot token: µs, 16 digits, at most a year
-- ahead of now (ms). With the largest number on record, all later boots would get the same token.
local function boot_time(v, now)
  return v and #v == 16 and string.match(v, '^%d+$') and tonumber(v) <= (now + 366 * 86400000) * 1000 and v
end

-- tell_grace(key, grace, at, boot) records an owner's GRACE with each beat, since an owner need not
-- contend. If the witness has another one, grace becomes 0, which no fleet uses: the next listener
-- notices, and no other owner's beat hides it. It writes nothing until somebody listens. It returns
-- when entries may last have been lost, and when the registry was last emptied.
--
-- boot, if given, is the time in the owner's boot token, and raises the highest one on record;
-- until somebody listens, only if it is ahead of the clock.
local function tell_grace(key, grace, at, boot)
  local w = redis.pcall('HMGET', key, 'grace', 'largest', 'lost', 'boot', 'emptied')
  if boot and not w.err and boot > (boot_time(w[4], at) or '') and (w[1] or tonumber(boot) >= (at + 1) * 1000) then
    redis.pcall('HSET', key, 'boot', boot)
  end
  if not w.err and w[1] and w[1] ~= grace then -- what cannot be read is not overwritten
    redis.pcall('HSET', key, 'grace', '0', 'disagreed', at, 'largest', larger(w[2], larger(w[1], grace)))
  end
  return brief(w[3]) or '', w[5]
end

-- tell_gap(key, at) records a hold, and returns the new 'lost', for an owner that a Cluster refused
-- while its keys moved: its silence was not evidence. Listeners of an older version, or with all
-- keys on one side, were not refused and know nothing of it.
local function tell_gap(key, at)
  if type(redis.pcall('HGET', key, 'last')) ~= 'string' then return end -- nobody listens yet
  redis.pcall('HSET', key, 'since', at, 'hold', at, 'reason', 'gap', 'lost', at)
  return at
end
