package proof_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/proof"
)

type pass struct {
	client redis.UniversalClient
	epoch  uint64
	dry    bool
	fail   bool // each call
}

func (p *pass) Client() redis.UniversalClient { return p.client }
func (p *pass) PageSize() int                 { return 100 }
func (p *pass) Epoch() uint64                 { return p.epoch }
func (p *pass) DryRun() bool                  { return p.dry }
func (p *pass) Layout() guard.Layout          { return guard.Layout{} }

func (p *pass) Call(ctx context.Context, f func(context.Context) error) error {
	if p.fail {
		return errors.New("no answer")
	}
	return f(ctx)
}

// world is a server with a clock of its own, and the truth about what was seen.
type world struct {
	t      *testing.T
	server *miniredis.Miniredis
	*pass
	now     time.Time
	options proof.Options
}

const grace, apart = 10 * time.Second, 10 * time.Second

func newWorld(t *testing.T) *world {
	server := miniredis.RunT(t)
	w := &world{t: t, server: server, now: time.Unix(1_800_000_000, 0), pass: &pass{epoch: 7}}
	w.client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = w.client.Close() })
	w.options = proof.Options{Marks: "marks", State: "state", Basis: "rule", Apart: apart, Hold: time.Minute, Most: 40}
	w.later(0)
	w.hold()
	return w
}

func (w *world) later(d time.Duration) {
	w.now = w.now.Add(d)
	w.server.SetTime(w.now)
}

func (w *world) hold() { w.server.HSet("janitor:witness", "since", fmt.Sprint(w.now.UnixMilli())) }

func (w *world) open() *proof.Book {
	w.t.Helper()
	// The process' own clock does not move with the server's, so it remembers nothing.
	b, err := proof.Open(w.t.Context(), w.pass, w.options)
	require.NoError(w.t, err)
	return b
}

func (w *world) look(b *proof.Book, names ...string) {
	w.t.Helper()
	require.NoError(w.t, b.Look(w.t.Context(), w.found(names...)))
}

func (w *world) found(names ...string) (all []proof.Found) {
	for _, name := range names {
		all = append(all, proof.Found{Name: name, Print: "p", At: w.now, Verdict: proof.Condemned})
	}
	return all
}

func (w *world) pass1(names ...string) *proof.Book {
	w.t.Helper()
	b := w.open()
	w.look(b, names...)
	_, err := b.Looked(w.t.Context(), true)
	require.NoError(w.t, err)
	return b
}

func (w *world) ripe(b *proof.Book, name string) bool {
	since, ok := b.Since(name, w.now)
	return ok && since >= grace
}

func TestAChainCondemnsAfterItsGraceAlone(t *testing.T) {
	for name, between := range map[string]func(w *world){
		"nothing":              func(*world) {},
		"nobody looked":        func(w *world) { w.later(longest) },
		"a hold":               func(w *world) { w.hold() },
		"another meaning":      func(w *world) { w.options.Basis = "other" },
		"a pass that broke":    func(w *world) { w.look(w.open(), "a") },
		"something was lost":   func(w *world) { require.NoError(w.t, w.open().End(w.t.Context(), "lost")) },
		"the clock went back":  func(w *world) { w.later(-time.Hour); w.pass1("a"); w.later(time.Hour) },
		"it lived":             func(w *world) { w.lives("a") },
		"it was another thing": func(w *world) { w.other("a") },
		"it was away":          func(w *world) { w.pass1() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pass1("a")
			w.later(apart)
			between(w)
			b := w.pass1("a")
			require.Equal(t, name == "nothing", w.ripe(b, "a"))
			w.later(apart)
			require.True(t, w.ripe(w.pass1("a"), "a"), "the chain that began then")
		})
	}
}

const longest = 2*apart + time.Second

func (w *world) lives(name string) {
	b := w.open()
	require.NoError(w.t, b.Look(w.t.Context(), []proof.Found{{Name: name, At: w.now, Verdict: proof.Alive}}))
	_, err := b.Looked(w.t.Context(), false)
	require.NoError(w.t, err)
}

func (w *world) other(name string) {
	b := w.open()
	require.NoError(w.t, b.Look(w.t.Context(), []proof.Found{{Name: name, Print: "q", At: w.now, Verdict: proof.Condemned}}))
	_, err := b.Looked(w.t.Context(), false)
	require.NoError(w.t, err)
}

func TestAWaveHoldsOnce(t *testing.T) {
	w := newWorld(t)
	var names []string
	for i := range 30 {
		names = append(names, strconv.Itoa(i))
	}
	b := w.open()
	w.look(b, names...)
	_, err := b.Looked(t.Context(), true)
	held := new(janitor.HeldError)
	require.ErrorAs(t, err, &held)
	require.Equal(t, proof.MassFailure, held.Reason)
	w.later(apart)
	b = w.open()
	left, err := b.Held(t.Context())
	require.NoError(t, err)
	require.Equal(t, time.Minute-apart, left)
	w.look(b, names...)
	_, err = b.Looked(t.Context(), true)
	require.NoError(t, err)
	require.True(t, w.ripe(b, "3"))
}

func TestAWaveWhileNobodyLookedIsNew(t *testing.T) {
	w := newWorld(t)
	var names []string
	for i := range 19 {
		names = append(names, strconv.Itoa(i))
	}
	w.pass1(names...)
	w.later(time.Hour)
	b := w.open()
	w.look(b, append(names, "19")...)
	_, err := b.Looked(t.Context(), true)
	require.Error(t, err)
}

func TestMarksAreBoundedAndSharedOut(t *testing.T) {
	w := newWorld(t)
	w.options.Most, w.options.Bytes = 10, 100
	met := map[string]bool{}
	for range 200 {
		b := w.open()
		for i := range 50 {
			w.look(b, fmt.Sprintf("name-%05d", i))
		}
		unmarked, err := b.Looked(t.Context(), true)
		if err != nil {
			held := new(janitor.HeldError)
			require.ErrorAs(t, err, &held)
		}
		require.Len(t, b.Marked(), 10)
		require.Equal(t, 40, unmarked)
		for _, name := range b.Marked() {
			met[name] = true
		}
		require.NoError(t, b.Unmark(t.Context(), b.Marked()...))
	}
	require.Len(t, met, 50)
	w.options.Bytes = 35
	b := w.open()
	w.look(b, "name-00001", "name-00002", "name-00003", "name-00004")
	_, err := b.Looked(t.Context(), false)
	require.NoError(t, err)
	require.Len(t, b.Marked(), 3)
}

func TestADryRunWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.pass1("a")
	before := w.dump()
	w.dry = true
	w.options.Basis = "other"
	b := w.open()
	w.look(b, "b")
	require.NoError(t, b.End(t.Context(), "lost"))
	require.NoError(t, b.NoteMoment(t.Context(), "x", w.now))
	_, err := b.Looked(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, before, w.dump())
}

func (w *world) dump() string {
	return fmt.Sprint(w.client.HGetAll(w.t.Context(), "marks").Val(), w.client.HGetAll(w.t.Context(), "state").Val())
}

func TestAFormerLeaderWritesNothing(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	_, err := w.server.XAdd("janitor:log", "8-0", []string{"leader", "b"})
	require.NoError(t, err)
	before := w.dump()
	_, err = b.Looked(t.Context(), true)
	require.ErrorIs(t, err, janitor.ErrFenced)
	require.Equal(t, before, w.dump())
}

// A write of an ended chain that lands late revives nothing.
func TestNotesThatSomebodyMadeLargeAreNotRead(t *testing.T) {
	w := newWorld(t)
	open := func() *proof.Book {
		book, err := proof.Open(t.Context(), w, w.options)
		require.NoError(t, err)
		return book
	}
	require.NoError(t, open().Note(t.Context(), map[string]string{"note": "ours",
		"large": strings.Repeat("x", 1<<20)}))
	require.Equal(t, "ours", open().State("note"))
	require.Empty(t, open().State("large"))
	for i := range 1000 {
		w.server.HSet("state", fmt.Sprint(i), "junk")
	}
	w.later(time.Minute)
	require.Empty(t, open().State("note"))
}

func TestALateWriteEndsNoNewerChain(t *testing.T) {
	w := newWorld(t)
	w.pass1("a")
	former := w.dump()
	chain := w.client.HGet(t.Context(), "state", "chain").Val()
	w.later(apart)
	require.NoError(t, w.open().End(t.Context(), "lost"))
	number, err := strconv.ParseInt(chain, 10, 64)
	require.NoError(t, err)
	require.Error(t, proof.Write(t.Context(), w.pass, "state", number, map[string]string{"chain": chain}, nil))
	require.NotEqual(t, former, w.dump())
	require.False(t, w.ripe(w.pass1("a"), "a"))
}

func TestAMomentFromBeforeTheClockWasSetIsBounded(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	require.NoError(t, b.NoteMoment(t.Context(), "until", w.now.Add(time.Minute)))
	w.later(-time.Hour)
	at, err := w.open().Moment(t.Context(), "until", time.Minute)
	require.NoError(t, err)
	require.Equal(t, w.now.Add(time.Minute), at.In(w.now.Location()))
	w.later(time.Minute)
	at, err = w.open().Moment(t.Context(), "until", time.Minute)
	require.NoError(t, err)
	require.False(t, at.After(w.now))
}

// The laws of the package comment, against a world that knows since when each thing was seen
// condemned in every look.
func TestNothingRipensWithoutAnUnbrokenChain(t *testing.T) {
	const things = 6
	steps := 2_000
	if n, err := strconv.Atoi(os.Getenv("PROOF_STEPS")); err == nil {
		steps = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	since := map[string]time.Time{} // of an unbroken chain
	prints := map[string]int{}
	looked := w.now
	ripe, bases := 0, 0
	for range steps {
		if random.IntN(4) == 0 {
			w.later(time.Duration(random.IntN(3)) * apart)
		} else {
			w.later(time.Duration(1+random.IntN(5)) * time.Second)
		}
		switch random.IntN(60) {
		case 0:
			w.hold()
			clear(since)
		case 1:
			bases++
			w.options.Basis = strconv.Itoa(bases)
			clear(since)
		case 2:
			require.NoError(t, w.open().End(t.Context(), "lost"))
			clear(since)
			continue
		case 3:
			prints[strconv.Itoa(random.IntN(things))]++
		}
		if w.now.Sub(looked) > longest {
			clear(since)
		}
		b := w.open()
		breaks := random.IntN(20) == 0
		var found []proof.Found
		seen := map[string]time.Time{}
		for i := range things {
			name := strconv.Itoa(i)
			f := proof.Found{Name: name, Print: strconv.Itoa(prints[name]), At: w.now, Verdict: proof.Condemned}
			if random.IntN(8) == 0 {
				f.Verdict = proof.Alive
			} else if at, was := since[name+"/"+f.Print]; was {
				seen[name+"/"+f.Print] = at
			} else {
				seen[name+"/"+f.Print] = w.now
			}
			found = append(found, f)
		}
		require.NoError(t, b.Look(t.Context(), found))
		if breaks {
			clear(since)
			continue
		}
		_, err := b.Looked(t.Context(), random.IntN(3) == 0)
		require.NoError(t, err)
		since, looked = maps.Clone(seen), w.now
		for _, f := range found {
			if w.ripe(b, f.Name) {
				ripe++
				at, was := since[f.Name+"/"+f.Print]
				require.True(t, was, "%s lives", f.Name)
				require.GreaterOrEqual(t, w.now.Sub(at), grace)
			} else if at, was := since[f.Name+"/"+f.Print]; was {
				require.Less(t, w.now.Sub(at), grace, "%s should be ripe", f.Name)
			}
		}
	}
	require.Greater(t, ripe, steps/20)
}
