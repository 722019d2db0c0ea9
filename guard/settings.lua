-- settings.lua: what owners tell the witness, and whether replicas' GRACE differs: the largest
-- counts. Not a script of its own: beat.lua, boot.lua and witness.lua stand behind it.

-- What is larger than two days is no setting of ours.
local most = 172800000

-- count(v) returns what a field of the witness holds, if the witness can have written it, else nil.
-- To Lua "nan", "1e300" and "-5" are numbers too, and a time that is none compares as never held.
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

-- boot_time(v, now) returns v if it can be the time in a boot token: µs, 16 digits, and no year
-- ahead of now, ms: else the largest number of all would make each boot after it the same.
local function boot_time(v, now)
  return v and #v == 16 and string.match(v, '^%d+$') and tonumber(v) <= (now + 366 * 86400000) * 1000 and v
end

-- tell_grace(key, grace, at, boot): an owner need not contend, so each beat records its GRACE in
-- the witness. If the witness has another one, the fleet disagrees, and the next listener finds
-- that out: no fleet has grace 0, and the beat of another owner does not hide it. Without a
-- listener it writes nothing; the next beat does. It returns the witness' last hold that may have
-- lost entries, and when the registry was last emptied.
--
-- boot, if given, is the time in the owner's boot token. It raises the highest one on record;
-- without a listener, only if the clock is earlier.
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

-- tell_gap(key, at): the servers of a Cluster refused an owner while its keys moved from one to the
-- other. Whoever listens should have been refused too, but one of an older version, or of keys that
-- were all on one side, was not. So the owner itself says that its silence was no evidence. It
-- returns what 'lost' is then.
local function tell_gap(key, at)
  if type(redis.pcall('HGET', key, 'last')) ~= 'string' then return end -- nobody listens yet
  redis.pcall('HSET', key, 'since', at, 'hold', at, 'reason', 'gap', 'lost', at)
  return at
end
