-- feed.lua: one replica at a time feeds the mirror from the source. It holds a lease, and leaves a
-- mark at each call: a restore, whatever it does to the server's ids, brings an older mark back, or
-- none.
-- KEYS[1] mitras:fed  KEYS[2] mitras:seeded  KEYS[3] availability:offline
-- ARGV[1] what to do, if the lease is this replica's or free:
--   take     take or keep it
--   clear    the same, and nobody knows what the mirror lacks
--   report   the same, and the mirror has what the source had committed ARGV[5] ms ago
--   certify  the same, and the mirror is whole: it has all that the source had ARGV[5] ms ago
--   release  give it up
--   doubt    have whoever feeds compare everything
-- ARGV[2] this replica  ARGV[3] how long the lease lasts, in ms  ARGV[4] the mark to leave
-- ARGV[5] see above  ARGV[6] how far the source's clock is ahead (ms), or ''
-- ARGV[7] the life of the data at the last call, or ''  ARGV[8..] the marks that may be there
-- Result: { seconds, microseconds, role, life, whole 0|1, ms since all was there or '', skew or '',
--   heartbeats_at, not_required }. role is other; same: this replica feeds, and nobody else did,
--   nor was the mirror set back, since its last call; anew: it feeds, and has to compare
--   everything; or unfit: the first key is of another type.
local what, name, lease, mark, known = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[7]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function text(n) return string.format('%.0f', n) end

local life = ''
for _, part in ipairs({ 'server', 'replication' }) do
  local info = redis.pcall('INFO', part)
  if type(info) == 'string' then
    life = life .. (string.match(info, 'run_id:(%w+)') or '') .. (string.match(info, 'master_replid:(%w+)') or '')
  end
end

-- field(key, name) returns a field, or false: not one that somebody made large.
local function field(key, name)
  local n = redis.pcall('HSTRLEN', key, name)
  return type(n) == 'number' and n < 64 and redis.call('HGET', key, name)
end
if type(redis.pcall('HLEN', KEYS[1])) == 'table' then
  return { t[1], t[2], 'unfit', life, '0', '', '', '', '' }
end
local fed = {}
for i, name in ipairs({ 'by', 'until', 'mark', 'doubt' }) do fed[i] = field(KEYS[1], name) end
local function number(v) return v and #v < 17 and string.find(v, '^%d+$') and tonumber(v) end
local ends = number(fed[2]) or 0
local mine = fed[1] == name
local role = 'other'
if what == 'doubt' then
  redis.call('HSET', KEYS[1], 'doubt', '1')
elseif what == 'release' then
  if mine then redis.call('HDEL', KEYS[1], 'by', 'until') end
elseif mine or ends <= now or ends > now + lease then -- no replica's lease ends later
  local back = known ~= '' and life ~= known or fed[4]
  role = 'anew'
  for i = 8, #ARGV do
    if ARGV[i] == fed[3] and not back then role = 'same' end
  end
  redis.call('HSET', KEYS[1], 'by', name, 'until', text(now + lease), 'mark', mark)
  if back or mine and role == 'anew' or what == 'clear' then
    redis.call('HDEL', KEYS[1], 'upto', 'doubt')
  elseif role == 'same' and what == 'report' then
    redis.call('HSET', KEYS[1], 'upto', text(now - tonumber(ARGV[5])), 'skew', ARGV[6])
  elseif role == 'same' and what == 'certify' then
    redis.call('SET', KEYS[2], iso(now - tonumber(ARGV[5])))
  end
end
local at = redis.pcall('GETRANGE', KEYS[2], 0, 24)
local upto = number(field(KEYS[1], 'upto'))
return {
  t[1], t[2], role, life, type(at) == 'string' and #at == 24 and '1' or '0',
  upto and upto <= now and text(now - upto) or '', field(KEYS[1], 'skew') or '',
  field(KEYS[3], 'heartbeats_at') or '', field(KEYS[3], 'not_required') or '',
}
