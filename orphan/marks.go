package orphan

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

//go:embed note.lua
var noteText string

var noteScript = redis.NewScript(noteText)

type mark struct {
	at    time.Time // by the server's clock
	print string
	alone bool
}

// text is `<ms> <fingerprint>`, and ` alone` if the parent was gone.
func (m mark) text() string {
	s := strconv.FormatInt(m.at.UnixMilli(), 10) + " " + m.print
	if m.alone {
		s += " alone"
	}
	return s
}

func parseMark(text string) (m mark) {
	at, rest, _ := strings.Cut(text, " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return mark{} // not ours: a time before any hold, so it never counts
	}
	m.at = time.UnixMilli(ms)
	m.print, m.alone = strings.CutSuffix(rest, " alone")
	return m
}

func marksKey(l guard.Layout, rule string) string { return l.Prefix + "orphan:marks:" + rule }
func stateKey(l guard.Layout, rule string) string { return l.Prefix + "orphan:state:" + rule }

// binnedKey is a hash, id -> JSON; dropsKey is a sorted set of its ids, by the time (ms) to drop
// them.
func binnedKey(l guard.Layout, rule string) string { return l.Prefix + "orphan:binned:" + rule }
func dropsKey(l guard.Layout, rule string) string  { return l.Prefix + "orphan:drops:" + rule }

// oldBinKey is the bin of older versions: a sorted set of JSON. The keys that it names expire.
func oldBinKey(l guard.Layout, rule string) string { return l.Prefix + "orphan:bin:" + rule }

type notes struct {
	marks map[string]mark
	since time.Time // start of the witness's listening
	// Marks made before valid do not count: data may have been lost then. It is since, or when a
	// reference was lost, a server of a Cluster changed, or a new chain of looks began.
	valid time.Time
	// state has held_until, unmarked, lost_at, heard_since, servers, and gone_since of each reference.
	state map[string]string
}

func readNotes(ctx context.Context, c caller, l guard.Layout, rule string) (*notes, error) {
	n := &notes{marks: map[string]mark{}}
	err := c.Call(ctx, func(ctx context.Context) error {
		cmds, err := c.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.HGet(ctx, l.Witness(), "since")
			pipe.HGetAll(ctx, stateKey(l, rule))
			return nil
		})
		if err != nil && err != redis.Nil {
			return err
		}
		since, _ := strconv.ParseInt(cmds[0].(*redis.StringCmd).Val(), 10, 64)
		n.state = cmds[1].(*redis.MapStringStringCmd).Val()
		lost, _ := strconv.ParseInt(n.state[lostAt], 10, 64)
		n.since, n.valid = time.UnixMilli(since), time.UnixMilli(max(since, lost))
		return nil
	})
	if err == nil {
		err = eachField(ctx, c, marksKey(l, rule), func(name, text string) error {
			n.marks[name] = parseMark(text)
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("orphan: marks of rule %q: %w", rule, err)
	}
	return n, nil
}

// note sets fields of a hash and deletes others, unless a newer term has begun: a leader that was
// paused must not overwrite its successor's notes.
func note(ctx context.Context, p *janitor.Pass, key string, set map[string]string, unset []string) error {
	for len(set)+len(unset) > 0 {
		args := []any{p.Epoch(), 0}
		pairs := 0
		for field, value := range set {
			if pairs == pipelined {
				break
			}
			args = append(args, field, value)
			delete(set, field)
			pairs++
		}
		args[1] = pairs
		most := min(len(unset), pipelined)
		for _, field := range unset[:most] {
			args = append(args, field)
		}
		unset = unset[most:]
		err := p.Call(ctx, func(ctx context.Context) error {
			done, err := noteScript.Run(ctx, p.Client(), []string{p.Layout().Log(), key}, args...).Int()
			if err == nil && done == 0 {
				return janitor.ErrFenced
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("orphan: note: %w", err)
		}
	}
	return nil
}
