package rollcall_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
	"github.com/rollcall-redis/rollcall/rollcalltest"
)

// limited is a replica's user on a Redis of its own.
type limited struct {
	*redistest.Server
	admin *redis.Client
	db    int
}

func (l limited) may(t *testing.T, rules ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "embedder", "reset", "on", ">secret"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, l.admin.Do(t.Context(), args...).Err())
}

func (l limited) options() *redis.Options {
	return &redis.Options{Addr: l.Addr(), Username: "embedder", Password: "secret", DB: l.db, DisableIdentity: true}
}

func (l limited) replica(t *testing.T, prefix, id string) (*rollcall.Replica, func()) {
	t.Helper()
	r, err := rollcall.New(rollcall.Config{
		Redis: l.options(), Prefix: prefix, Instance: id, Interval: 200 * time.Millisecond, TTL: time.Second, Drain: time.Second,
		Logger:  slog.New(slog.DiscardHandler),
		Janitor: rollcall.Janitor{ScanEvery: 300 * time.Millisecond, LeaseTTL: 3 * time.Second, LogBytes: 1},
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	running := pool.New()
	running.Go(func() { _ = r.Run(ctx) })
	<-r.Started()
	return r, func() { stop(); running.Wait() }
}

// A life of two replicas, in which everything happens that Redis is asked for.
func (l limited) live(t *testing.T, prefix string) {
	t.Helper()
	ctx := t.Context()
	eventually := func(what string, cond func() bool) {
		t.Helper()
		require.Eventually(t, cond, 30*time.Second, 10*time.Millisecond, what)
	}
	entry := func(id string) string { return l.admin.HGet(ctx, prefix+"connections:registry", id).Val() }
	// What is of another type, or too much, and what a dead owner left.
	require.NoError(t, l.admin.Set(ctx, prefix+"janitor:beats", "not a hash", 0).Err())
	require.NoError(t, l.admin.Set(ctx, prefix+"janitor:witness", "not a hash", 0).Err())
	above := fmt.Sprintf("%d-1", time.Now().Add(time.Hour).UnixMicro()) // as a failover leaves it
	require.NoError(t, l.admin.XAdd(ctx, &redis.XAddArgs{Stream: prefix + "janitor:log", ID: above,
		Values: []any{"a", "b"}}).Err())
	a, stopA := l.replica(t, prefix, "a")
	b, stopB := l.replica(t, prefix, "b")
	defer stopA()
	defer stopB()
	older := a.Register("alice", rollcalltest.NoSocket)
	require.NoError(t, older.Wait(ctx))
	newer := b.Register("alice", rollcalltest.NoSocket)
	require.NoError(t, newer.Wait(ctx))
	// Which one is the older is known to half a round trip, longer than the time between the two here.
	eventually("one ends", func() bool { return older.Err() != nil || newer.Err() != nil })
	bob := a.Register("bob", rollcalltest.NoSocket)
	require.NoError(t, bob.Wait(ctx))
	require.NoError(t, l.admin.HDel(ctx, prefix+"connections:registry", "bob").Err())
	eventually("bob is back", func() bool { return entry("bob") == "a" })
	dead := doubt.Record{Last: time.Now().Add(-time.Minute).UnixMilli(), TTL: 1000, Due: 200, Born: 1,
		State: doubt.Holds}
	keys := registry.Layout{Prefix: prefix}
	_, err := l.admin.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, keys.Beats(), "dead", dead.String())
		p.SAdd(ctx, keys.Roster(), "dead")
		p.SAdd(ctx, keys.Devices("dead"), "carol", "without an entry")
		p.HSet(ctx, keys.Registry(), "carol", "dead")
		return nil
	})
	require.NoError(t, err)
	eventually("what the dead left is swept", func() bool { return entry("carol") == "" })
	eventually("and it is", func() bool { return !l.admin.SIsMember(ctx, keys.Roster(), "dead").Val() })
	_, err = b.LookupMany(ctx, []string{"alice", "bob"})
	require.NoError(t, err)
	_, err = b.Owners(ctx)
	require.NoError(t, err)
	for _, err := range b.Holdings(ctx, "a") {
		require.NoError(t, err)
	}
	eventually("somebody leads", func() bool {
		for _, r := range []*rollcall.Replica{a, b} {
			_, err := r.Sweep(ctx, janitor.Request{})
			if err == nil {
				return true
			}
		}
		return false
	})
	require.NoError(t, a.Pause(ctx, janitor.Pause{Until: time.Now().Add(time.Minute), Why: "a test"}))
	require.NoError(t, a.Resume(ctx))
	require.NoError(t, a.Ready())
	require.NoError(t, b.Ready())
	eventually("it resigns", func() bool { return a.Resign(ctx) == nil || b.Resign(ctx) == nil })
	bob.Release()
	eventually("bob is out", func() bool { return entry("bob") == "" })
}

func (l limited) refusals(t *testing.T) (found []string) {
	t.Helper()
	log, err := l.admin.Do(t.Context(), "ACL", "LOG", "100").Slice()
	require.NoError(t, err)
	for _, e := range log {
		m, is := e.(map[any]any)
		require.True(t, is, e)
		found = append(found, fmt.Sprint(m["reason"], " ", m["object"], " ", m["context"]))
	}
	return found
}

// asked returns what clients and scripts ask of Redis until stop is called: names of commands, and
// their arguments.
func (l limited) asked(t *testing.T) (stop func() (commands, arguments map[string]bool)) {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(t, err)
	return func() (commands, arguments map[string]bool) {
		require.NoError(t, l.admin.Echo(t.Context(), "the end").Err())
		commands, arguments = map[string]bool{}, map[string]bool{}
		for lines := bufio.NewScanner(conn); !arguments["the end"] && lines.Scan(); {
			for i, word := range quoted.FindAllStringSubmatch(lines.Text(), -1) {
				if i == 0 {
					commands[strings.ToLower(word[1])] = true
				}
				arguments[word[1]], arguments[strings.ToLower(word[1])] = true, true
			}
		}
		require.Contains(t, arguments, "the end")
		return commands, arguments
	}
}

var quoted = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)

// All that is granted is used, and nothing else is needed.
func TestTheRightsOfAnEmbedderAreExact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		prefix string
		db     int
	}{{"", 0}, {"chat:", 2}, {"{chat}:", 0}} {
		t.Run(fmt.Sprint(c.prefix, c.db), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			o := server.Options()
			o.DB = c.db
			l := limited{server, redis.NewClient(o), c.db}
			t.Cleanup(func() { _ = l.admin.Close() })
			rules := rollcall.ACL(c.prefix, c.db)
			l.may(t, rules...)
			stop := l.asked(t)
			defer func() { require.Empty(t, l.refusals(t)) }()
			l.live(t, c.prefix)
			commands, arguments := stop()
			var unused []string
			for _, rule := range rules {
				name, sub, _ := strings.Cut(rule[1:], "|")
				used := commands[name] && (sub == "" || arguments[sub]) || name == "ping" // of a silent connection
				for a := range arguments {
					if rule[0] != '+' && !used {
						used, _ = path.Match(rule[1:], a)
					}
				}
				if !used {
					unused = append(unused, rule)
				}
			}
			require.Empty(t, unused, "granted, and never used")
		})
	}
}

func TestAReplicaThatMayNotHearOrTellIsNotReady(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, lacks := range []string{"-publish", "-subscribe", "resetchannels"} {
		l := limited{server, server.Client(), 0}
		l.may(t, append(rollcall.ACL("", 0), lacks)...)
		r, err := rollcall.New(rollcall.Config{Redis: l.options(), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		running := pool.New()
		running.Go(func() { _ = r.Run(ctx) })
		<-r.Started()
		require.Eventually(t, func() bool { return !r.Status().Registry.LastBeat.IsZero() },
			30*time.Second, time.Millisecond)
		require.ErrorContains(t, r.Ready(), "allow PUBLISH and SUBSCRIBE", lacks)
		stop()
		running.Wait()
	}
}

func TestThePageHasTheRightsOfAnEmbedder(t *testing.T) {
	t.Parallel()
	rules := []any{"on", ">PASSWORD"}
	for _, rule := range rollcall.ACL("", 0) {
		rules = append(rules, rule)
	}
	require.Equal(t, rules, redistest.User(t, "docs/redis.md", "embedder"))
}
