package search

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// epochShift is between the bubble's time, which begins in 2000, and the servers': a time in 2000
// is none to a rule.
const epochShift = 26 * 365 * 24 * time.Hour

// advance moves a server to the time ARGV[1] (ms), and returns the offset of its clock. Its time is
// KEYS[2]'s, and does not go on while a command runs, however long that takes. Expiries are
// KEYS[1]'s (ms) later than they seem to the server.
const advance = `
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local offset, was = tonumber(ARGV[1]) - now, tonumber(redis.call('GET', KEYS[1]) or ARGV[1] - now)
for _, key in ipairs(redis.call('KEYS', '*')) do
  local at = redis.call('PEXPIRETIME', key)
  if at > 0 and at - (offset - was) <= now then
    redis.call('DEL', key)
  elseif at > 0 and offset ~= was then
    redis.call('PEXPIREAT', key, string.format('%.0f', at - (offset - was)))
  end
end
redis.call('SET', KEYS[1], string.format('%.0f', offset))
redis.call('SET', KEYS[2], ARGV[1])
return string.format('%.0f', offset)`

func offsetKey(tag string) string { return tag + "offset" }
func nowKey(tag string) string    { return tag + "now" }

// shim is put before each script: what it reads of the clock is virtual. A server has one of the
// tags.
var shim = fmt.Sprintf(`
local real, offset, present = redis, 0, nil
for _, tag in ipairs({ '%s', '%s', '%s' }) do
  local is = redis.pcall('GET', tag .. 'offset')
  if type(is) == 'string' then offset, present = tonumber(is), tonumber(redis.call('GET', tag .. 'now')) end
end
local function virtual(call)
  return function(name, ...)
    local command = string.upper(name)
    if command == 'TIME' then
      return { string.format('%%.0f', math.floor(present / 1000)), string.format('%%.0f', present %% 1000 * 1000) }
    elseif command == 'PEXPIRETIME' then
      local at = call(name, ...)
      return type(at) == 'number' and at > 0 and at + offset or at
    elseif command == 'PEXPIREAT' then
      local key, at = ...
      return call(name, key, string.format('%%.0f', tonumber(at) - offset))
    end
    return call(name, ...)
  end
end
local redis = setmetatable({ call = virtual(redis.call), pcall = virtual(redis.pcall) }, { __index = real })
`, tags[0], tags[1], tags[2])

// master is a server whose clock is moved.
type master struct {
	db     *redis.Client // sees the real clock
	tag    string
	at     time.Time // where the server is
	offset time.Duration
}

// clock is that of all servers.
type clock struct {
	cluster bool

	mu      sync.Mutex
	skew    time.Duration      // by which it was set
	masters map[string]*master // by port: a node that has met nobody does not know its address
	shas    map[string]string  // of scripts, and of what is sent in their place
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

func (c *clock) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

// now requires the lock.
func (c *clock) now() time.Time { return time.Now().Add(epochShift + c.skew) }

// reach moves a server to the present time, unless it is no master.
func (c *clock) reach(ctx context.Context, addr string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, now := c.masters[portOf(addr)], c.now()
	if m == nil || now.Equal(m.at) {
		return nil
	}
	var is *redis.Cmd
	_, err := m.db.Pipelined(context.WithoutCancel(ctx), func(p redis.Pipeliner) error {
		if c.cluster { // keys whose slot is on its way here
			p.Do(ctx, "ASKING")
		}
		is = p.Eval(ctx, advance, []string{offsetKey(m.tag), nowKey(m.tag)}, now.UnixMilli())
		return nil
	})
	if err != nil {
		return err
	}
	ms, err := is.Int64()
	m.at, m.offset = now, time.Duration(ms)*time.Millisecond
	return err
}

func (c *clock) set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew += by
}

// rewrite puts the shim before a script.
func (c *clock) rewrite(cmd redis.Cmder) {
	args := cmd.Args()
	sum := func(text string) string { s := sha1.Sum([]byte(text)); return hex.EncodeToString(s[:]) }
	c.mu.Lock()
	defer c.mu.Unlock()
	switch strings.ToLower(cmd.Name()) {
	case "eval":
		if text := args[1].(string); !strings.HasPrefix(text, shim) { // else another node has sent us here
			c.shas[sum(text)] = sum(shim + text)
			args[1] = shim + text
		}
	case "evalsha":
		if is, known := c.shas[args[1].(string)]; known {
			args[1] = is
		}
	}
}

// answered makes an answer about the clock virtual.
func (c *clock) answered(addr string, cmd redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.masters[portOf(addr)]
	if cmd.Err() != nil || m == nil {
		return
	}
	switch is := cmd.(type) {
	case *redis.TimeCmd:
		is.SetVal(m.at.Truncate(time.Millisecond))
	case *redis.Cmd:
		if at, number := is.Val().(int64); number && at > 0 && strings.EqualFold(cmd.Name(), "pexpiretime") {
			is.SetVal(at + m.offset.Milliseconds())
		}
	}
}

var errAway = errors.New("search: this process is no more")

// line is between one worker, or the model itself, and the servers.
type line struct {
	c      *clock
	before func(cmds []redis.Cmder) (behind func()) // of a worker; it may let time pass
	seen   func(cmd redis.Cmder)                    // each command of it that was answered
	mu     sync.Mutex
	dead   bool
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

func (l *line) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// wire is a line to one server.
type wire struct {
	*line
	addr string
}

// send sends commands at the present time of the server.
func (w wire) send(ctx context.Context, cmds []redis.Cmder, next func() error) error {
	if w.before != nil {
		defer w.before(cmds)()
	}
	if w.isDead() {
		return redistest.Fail(cmds, errAway)
	}
	for _, cmd := range cmds {
		w.c.rewrite(cmd)
	}
	if err := w.c.reach(ctx, w.addr); err != nil {
		return redistest.Fail(cmds, err)
	}
	err := next()
	for _, cmd := range cmds {
		w.c.answered(w.addr, cmd)
		if w.seen != nil {
			w.seen(cmd)
		}
	}
	return err
}
