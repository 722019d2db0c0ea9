// Package model has the models in Promela, and what keeps them and the code together: the traces
// that spin finds where a rule is taken out of a model are replayed on the real scripts.
package model_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A trace is a file that model/check has written.
type trace struct {
	model, rule string
	breaks      string // what breaks without the rule
	figures     string
	events      []string
}

// traces reads those of one model; "": of all.
func traces(t *testing.T, model string) (all []trace) {
	files, err := filepath.Glob("traces/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files, "run make model")
	for _, name := range files {
		tr := trace{}
		tr.model, tr.rule, _ = strings.Cut(strings.TrimSuffix(filepath.Base(name), ".txt"), "-")
		if model != "" && tr.model != model {
			continue
		}
		file, err := os.Open(name)
		require.NoError(t, err)
		for s := bufio.NewScanner(file); s.Scan(); {
			head, isHead := strings.CutPrefix(s.Text(), "# ")
			switch {
			case !isHead:
				tr.events = append(tr.events, s.Text())
			case tr.breaks == "":
				tr.breaks = head
			default:
				tr.figures = head
			}
		}
		require.NoError(t, file.Close())
		require.NotEmpty(t, tr.events, name)
		all = append(all, tr)
	}
	return all
}

// A change takes a rule out of a script: old stands in it, and is replaced; also is cut out.
// allowFull: the script may write where memory is full. without: a key that no script names.
type change struct {
	old, new  string
	also      string
	allowFull bool
	without   string
}

// inGo is a rule that is no script's: a replay shows only that the scripts bear what happens.
// sweeps is no rule: the scripts as they are delete here.
var neverKey = guard.Layout{}.Never()

var (
	inGo   = change{}
	sweeps = change{without: "sweeps"}
)

// server is a Redis of a test's own, and changes scripts on their way there.
type server struct {
	*redis.Client // of somebody who may do all, and whose scripts are not changed
	t             *testing.T
	options       *redis.Options
	change        change
	changed       bool                // the change was made
	refuse        func([]string) bool // what is answered TRYAGAIN, by keys
}

func newServer(t *testing.T) *server {
	s := redistest.Start(t)
	return &server{Client: s.Client(), t: t, options: s.Options()}
}

// begin empties the server for another replay.
func (s *server) begin(c change) {
	s.change, s.changed, s.refuse = c, false, nil
	require.NoError(s.t, s.ConfigSet(s.t.Context(), "maxmemory", "0").Err())
	require.NoError(s.t, s.FlushAll(s.t.Context()).Err())
}

// client returns one that may not run a command ("": it may run all), whose scripts are changed.
func (s *server) client(not string) *redis.Client {
	o := *s.options
	if not != "" {
		o.Username, o.Password = "not-"+not, "p"
		err := s.Do(s.t.Context(), "ACL", "SETUSER", o.Username, "on", ">p", "~*", "&*", "+@all", "-"+not).Err()
		require.NoError(s.t, err)
	}
	o.MaxRetries = -1
	c := redis.NewClient(&o)
	s.t.Cleanup(func() { require.NoError(s.t, c.Close()) })
	c.AddHook(s)
	return c
}

// answer is an error as the server answers it.
type answer string

func (a answer) Error() string { return string(a) }

// RedisError marks it for go-redis.
func (answer) RedisError() {}

// DialHook is part of redis.Hook.
func (s *server) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook is part of redis.Hook.
func (s *server) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook is part of redis.Hook. It has every script sent with its text, and changes that.
func (s *server) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if cmd.Name() == "evalsha" {
			cmd.SetErr(answer("NOSCRIPT the text is asked for"))
			return cmd.Err()
		}
		if cmd.Name() != "eval" {
			return next(ctx, cmd)
		}
		text, n := args[1].(string), args[2].(int)
		if s.change.old != "" && strings.Contains(text, s.change.old) {
			require.Equal(s.t, 1, strings.Count(text, s.change.old), s.change.old)
			text, s.changed = strings.Replace(text, s.change.old, s.change.new, 1), true
			text = strings.Replace(text, s.change.also, "", 1)
		}
		if s.change.allowFull && strings.Contains(text, "function listen(") {
			text, s.changed = "#!lua flags=allow-oom\n"+text, true
		}
		args[1] = text
		keys := make([]string, n)
		for i := range keys {
			keys[i] = args[3+i].(string)
		}
		for i, key := range keys {
			// Nor does a key exist by which another witness would be called.
			if key == s.change.without || s.change.without == neverKey && strings.HasPrefix(key, guard.Layout{}.Witness()+":aside:") {
				keys[i], s.changed = keys[0], true // the others keep their places
			}
		}
		if s.refuse != nil && s.refuse(keys) {
			cmd.SetErr(answer("TRYAGAIN Multiple keys request during rehashing of slot"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// script is one that is put together of the files of a package, as the code does it.
func (s *server) script(names ...string) *redis.Script {
	text := ""
	for _, name := range names {
		file, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)+".lua"))
		require.NoError(s.t, err)
		text += string(file)
	}
	return redis.NewScript(text)
}

// own are the KEYS and the first ARGV of an owner's scripts.
func (s *server) own(id, token string, ttl, interval time.Duration) (keys []string, args []any) {
	l := guard.Layout{}
	keys = []string{l.Heartbeat(id), l.Roster(), l.Devices(id), l.Witness(), l.Registry(), l.Beats()}
	return keys, []any{id, token, ttl.Milliseconds(), "1", interval.Milliseconds(), "h", "0", ""}
}

// record is what the hash of beats has of an owner, last proved so long ago.
func (s *server) record(id string) (r doubt.Record, ago time.Duration) {
	r = doubt.Parse(s.HGet(s.t.Context(), guard.Layout{}.Beats(), id).Val())
	return r, time.Duration(s.now()-r.Last) * time.Millisecond
}

// proved makes the record of an owner say that its last proof of life was so long ago.
func (s *server) proved(id string, r doubt.Record, ago time.Duration) {
	r.Last = s.now() - ago.Milliseconds()
	require.NoError(s.t, s.HSet(s.t.Context(), guard.Layout{}.Beats(), id, r.String()).Err())
}

func (s *server) now() int64 {
	now, err := s.Time(s.t.Context()).Result()
	require.NoError(s.t, err)
	return now.UnixMilli()
}

// evidence is what a leader reads now of an owner.
func (s *server) evidence(owner string) guard.Evidence {
	record := s.HGet(s.t.Context(), guard.Layout{}.Beats(), owner).Val()
	return guard.Evidence{Record: record, ReadAt: s.now()}
}

// sweep has a term of its own delete the entry of an owner.
func (s *server) sweep(ctx context.Context, g *guard.Guard, l guard.Lease, owner, item string) guard.Answer {
	require.NoError(s.t, s.Set(ctx, guard.Layout{}.Lease(), l.Token, 0).Err())
	verdict, _, err := g.Open(ctx, l)
	require.NoError(s.t, err)
	require.Equal(s.t, guard.Done, verdict)
	a, err := g.Do(ctx, s.batch(l, 1, owner, item))
	require.NoError(s.t, err)
	return a
}

func (s *server) batch(l guard.Lease, n uint64, owner, item string) guard.Batch {
	return guard.Batch{
		ID: guard.BatchID{Epoch: l.Epoch, N: n}, Token: l.Token, Sweep: "registry", Owner: owner,
		Body: guard.EvictEntries, Keys: guard.EntryKeys(guard.Layout{}, owner), Items: []string{item},
		Evidence: s.evidence(owner),
	}
}

// older has all times be so much longer ago: what a server's clock does that goes on.
func (s *server) older(by time.Duration) {
	ctx := s.t.Context()
	keys, err := s.Keys(ctx, "*").Result()
	require.NoError(s.t, err)
	for _, key := range keys {
		left, err := s.PTTL(ctx, key).Result()
		require.NoError(s.t, err)
		if left > 0 { // at nothing left the server deletes it
			require.NoError(s.t, s.PExpire(ctx, key, max(0, left-by)).Err())
		}
	}
	for id := range s.HGetAll(ctx, guard.Layout{}.Beats()).Val() {
		r, ago := s.record(id)
		s.proved(id, r, ago+by)
	}
	s.shift(-by, times...)
}

// times are those of the witness.
var times = []string{"since", "last", "hold", "lost", "refused_at"}

// shift moves times of the witness.
func (s *server) shift(by time.Duration, fields ...string) {
	ctx, witness := s.t.Context(), guard.Layout{}.Witness()
	for _, field := range fields {
		at, err := s.HGet(ctx, witness, field).Int64()
		if errors.Is(err, redis.Nil) {
			continue
		}
		require.NoError(s.t, err)
		require.NoError(s.t, s.HSet(ctx, witness, field, max(1, at+by.Milliseconds())).Err())
	}
}

// replays runs the traces of a model: nothing may break where the scripts are as they are, and
// where a script loses the rule something must.
func replays(t *testing.T, model string, changes map[string]change,
	replay func(t *testing.T, s *server, tr trace) (broken []string),
) {
	s := newServer(t)
	all := traces(t, model)
	for _, tr := range all {
		c, known := changes[tr.rule]
		require.True(t, known, "how does a script lose %s?", tr.rule)
		t.Run(tr.rule, func(t *testing.T) {
			s.t = t
			s.begin(change{})
			broken := replay(t, s, tr)
			if c == sweeps {
				require.NotEmpty(t, broken, "the scripts as they are")
				return
			}
			require.Empty(t, broken, "the scripts as they are")
			if c == inGo {
				return
			}
			s.begin(c)
			broken = replay(t, s, tr)
			require.True(t, s.changed, "no script has %q", c.old)
			require.NotEmpty(t, broken, "the scripts without the rule")
		})
	}
	require.Len(t, changes, len(all), "rules that the model has no trace of")
}

// match reads an event by a format; it fails if that is not all of it.
func match(event, format string, args ...any) bool {
	n, err := fmt.Sscanf(event, format, args...)
	return err == nil && n == len(args) && fmt.Sprintf(format, values(args)...) == event
}

func values(args []any) (all []any) {
	for _, arg := range args {
		all = append(all, *arg.(*int))
	}
	return all
}
