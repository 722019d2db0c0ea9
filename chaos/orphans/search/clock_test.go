package search

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// epochShift is between the bubble's time, which begins in 2000, and the server's: a time in 2000
// is none to a rule.
const epochShift = 26 * 365 * 24 * time.Hour

// The time is nowKey's (ms), and does not go on while a command runs, however long that takes.
// Expiries are offsetKey's (ms) later than they seem to the server.
const nowKey, offsetKey = "{search}:now", "{search}:offset"

// advance moves the server to the time ARGV[1] (ms), and returns the offset of its clock.
var advance = redis.NewScript(`
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
return string.format('%.0f', offset)`)

// shim is put before each script: what it reads of the clock is virtual.
const shim = `
local real, offset = redis, tonumber(redis.call('GET', '` + offsetKey + `') or '0')
local function virtual(call)
  return function(name, ...)
    local command = string.upper(name)
    if command == 'TIME' then
      local ms = tonumber(call('GET', '` + nowKey + `'))
      return { string.format('%.0f', math.floor(ms / 1000)), string.format('%.0f', ms % 1000 * 1000) }
    elseif command == 'PEXPIRETIME' then
      local at = call(name, ...)
      return type(at) == 'number' and at > 0 and at + offset or at
    elseif command == 'PEXPIREAT' then
      local key, at = ...
      return call(name, key, string.format('%.0f', tonumber(at) - offset))
    end
    return call(name, ...)
  end
end
local redis = setmetatable({ call = virtual(redis.call), pcall = virtual(redis.pcall) }, { __index = real })
`

// clock is that of the server.
type clock struct {
	db *redis.Client // sees the real clock

	mu     sync.Mutex
	skew   time.Duration // by which it was set
	at     time.Time     // where the server is
	offset time.Duration
	shas   map[string]string // of scripts, and of what is sent in their place
}

func (c *clock) now() time.Time { return time.Now().Add(epochShift + c.skew) }

// reach moves the server to the present time.
func (c *clock) reach(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); !now.Equal(c.at) {
		ms, err := advance.Run(context.WithoutCancel(ctx), c.db, []string{offsetKey, nowKey}, now.UnixMilli()).Int64()
		if err != nil {
			return err
		}
		c.at, c.offset = now, time.Duration(ms)*time.Millisecond
	}
	return nil
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
		text := args[1].(string)
		c.shas[sum(text)] = sum(shim + text)
		args[1] = shim + text
	case "evalsha":
		if is, known := c.shas[args[1].(string)]; known {
			args[1] = is
		}
	}
}

// answered makes an answer about the clock virtual.
func (c *clock) answered(cmd redis.Cmder) {
	if cmd.Err() != nil {
		return
	}
	switch is := cmd.(type) {
	case *redis.TimeCmd:
		is.SetVal(c.at.Truncate(time.Millisecond))
	case *redis.Cmd:
		if at, number := is.Val().(int64); number && at > 0 && strings.EqualFold(cmd.Name(), "pexpiretime") {
			is.SetVal(at + c.offset.Milliseconds())
		}
	}
}

var errAway = errors.New("search: this process is no more")

// line is between one worker, or the model itself, and the server.
type line struct {
	c    *clock
	seen func(cmd redis.Cmder) // each command that was answered
	mu   sync.Mutex
	dead bool
}

func (l *line) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

func (l *line) begin(ctx context.Context, cmds ...redis.Cmder) error {
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead {
		for _, cmd := range cmds {
			cmd.SetErr(errAway)
		}
		return errAway
	}
	for _, cmd := range cmds {
		l.c.rewrite(cmd)
	}
	return l.c.reach(ctx)
}

func (l *line) end(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		l.c.answered(cmd)
		if l.seen != nil {
			l.seen(cmd)
		}
	}
}

func (l *line) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := l.begin(ctx, cmd); err != nil {
			return err
		}
		err := next(ctx, cmd)
		l.end(cmd)
		return err
	}
}

func (l *line) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := l.begin(ctx, cmds...); err != nil {
			return err
		}
		err := next(ctx, cmds)
		l.end(cmds...)
		return err
	}
}
