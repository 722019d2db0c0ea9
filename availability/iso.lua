-- iso.lua: the server's clock. Included, not a script of its own.

-- iso(ms) formats a time as heartbeats have it: ISO 8601, UTC, milliseconds, always 24
-- characters, so that later times are larger strings. Lua has no calendar here. Days are counted
-- in eras of 400 years that begin in March, which makes a leap day the last day of its year.
-- Every heartbeat runs this, so it uses % instead of math.floor where it can.
local function iso(ms)
  local floor, milli = math.floor, ms % 1000
  local s = (ms - milli) / 1000
  local t = s % 86400
  local day = (s - t) / 86400 + 719468
  local of_era = day % 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
  local m = floor((5 * of_year + 2) / 153)
  local d = of_year - floor((153 * m + 2) / 5) + 1
  local month = m < 10 and m + 3 or m - 9
  if month <= 2 then year = year + 1 end
  local second, minute = t % 60, (t % 3600 - t % 60) / 60
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year + (day - of_era) / 146097 * 400, month, d,
    (t - t % 3600) / 3600, minute, second, milli)
end

local function nowms()
  local t = redis.call('TIME')
  return t[1] * 1000 + (t[2] - t[2] % 1000) / 1000
end
