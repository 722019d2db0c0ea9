package proof

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

var (
	//go:embed open.lua
	openText string
	//go:embed write.lua
	writeText string

	// Lua defines ripe(c) for a guarded body: see ripe.lua.
	//
	//go:embed ripe.lua
	Lua string

	openScript  = redis.NewScript(openText)
	writeScript = redis.NewScript(writeText)
)

// Fields of the state. A sweep may have others.
const (
	chainField    = "chain"
	basisField    = "basis"
	lookedField   = "looked"     // end of the last complete look (ms), and its chain
	heldField     = "held_until" // end of the hold of a mass failure (ms)
	unmarkedField = "unmarked"   // condemned without a mark after the last full pass
)

const (
	// a look counts at least this long at the delete: the calls in between take time
	leastEvidence = 5 * time.Second
	// a larger difference between two clocks is a step of one
	clockStep = 2 * time.Second

	defaultMost  = 10_000
	defaultBytes = 8 << 20
	fewest       = 20    // things, below which no number of them is a mass failure
	perWrite     = 1_000 // arguments
)

// A Pass is the part of a janitor.Pass that a Book needs.
type Pass interface {
	Caller
	// Epoch is the term's number.
	Epoch() uint64
	// DryRun reports whether the pass only shows what it would do.
	DryRun() bool
	// Layout has the names of the fleet's keys.
	Layout() guard.Layout
}

// Options of a Book.
type Options struct {
	// Marks and State are the hashes' names, in the slot of the eviction log. Without Marks the Book
	// has only what the sweep notes, and Basis and Apart do not matter.
	Marks, State string
	// Basis is a digest of what the evidence relies on: what judges, and the servers asked.
	Basis string
	// Apart is the planned time between two looks at everything marked.
	Apart time.Duration
	// Most and Bytes bound the marks: their number, and the bytes of their names. Defaults 10,000 and
	// 8 MiB.
	Most, Bytes int
	Hold        time.Duration // of a mass failure
	// Memory is the sweep's in this process, and outlives the pass; nil: none.
	Memory *Memory
}

// Memory of a sweep between two passes of one process.
type Memory struct {
	server, own time.Time // of the last reading of the server's clock
	broken      bool      // a look's result was not recorded
}

// stepped reports whether the server's clock moved otherwise than ours since the last reading.
func (m *Memory) stepped(at time.Time) bool {
	was, own := *m, time.Now()
	m.server, m.own = at, own
	off := at.Sub(was.server) - own.Sub(was.own)
	return !was.server.IsZero() && off.Abs() > clockStep
}

// A Book has the evidence of one sweep, for one pass. It is for one goroutine.
type Book struct {
	p Pass
	o Options

	now   time.Time // by the server's clock, when it was opened
	since int64     // start of the witness's listening (ms)
	chain int64
	ended string // why the chain began with this pass
	state map[string]string

	marks  map[string]Mark
	bytes  int // of the marks' names
	unseen map[string]bool
	wants  wants
	newly  int  // condemned without a mark
	alive  int  // with a sign of life
	idle   bool // the chain ended since nobody looked for too long
}

// Open reads the book, and begins a new chain if the former has ended. In a dry run it writes
// nothing.
func Open(ctx context.Context, p Pass, o Options) (*Book, error) {
	if o.Memory == nil {
		o.Memory = new(Memory)
	}
	o.Most, o.Bytes = cmp.Or(o.Most, defaultMost), cmp.Or(o.Bytes, defaultBytes)
	b := &Book{p: p, o: o, marks: map[string]Mark{}, unseen: map[string]bool{}, wants: wants{all: map[string]Mark{}}}
	if err := b.readState(ctx); err != nil {
		return nil, err
	}
	if o.Marks == "" {
		return b, nil
	}
	for field, err := range Fields(ctx, p, o.Marks) {
		if err != nil {
			return nil, err
		}
		m, _ := ParseMark(field.Value) // what is not ours is of no chain
		b.keep(field.Name, m)
		b.unseen[field.Name] = true
	}
	b.ended = b.whyEnded()
	basis := b.basis()
	if b.ended != "" {
		b.chain = max(b.chain+1, b.now.UnixMicro())
	}
	if p.DryRun() {
		return b, nil
	}
	b.o.Memory.broken = true // until Looked
	return b, b.write(ctx, o.State, b.chain, map[string]string{
		chainField: strconv.FormatInt(b.chain, 10), basisField: basis,
	}, []string{lookedField})
}

func (b *Book) readState(ctx context.Context) error {
	var said []string
	err := b.p.Call(ctx, func(ctx context.Context) (err error) {
		said, err = openScript.Run(ctx, b.p.Client(), []string{b.p.Layout().Witness(), b.o.State}).StringSlice()
		return err
	})
	if err != nil {
		return fmt.Errorf("proof: %s: %w", b.o.State, err)
	}
	ms, _ := strconv.ParseInt(said[0], 10, 64)
	b.now = time.UnixMilli(ms)
	b.since, _ = strconv.ParseInt(said[1], 10, 64)
	b.state = map[string]string{}
	for i := 2; i+1 < len(said); i += 2 {
		b.state[said[i]] = said[i+1]
	}
	b.chain, _ = strconv.ParseInt(b.state[chainField], 10, 64)
	return nil
}

func (b *Book) basis() string { return strconv.FormatInt(b.since, 10) + " " + b.o.Basis }

// whyEnded returns why the chain of the former passes does not go on, or "".
func (b *Book) whyEnded() string {
	stepped := b.o.Memory.stepped(b.now)
	text, chain, _ := strings.Cut(b.state[lookedField], " ")
	ms, err := strconv.ParseInt(text, 10, 64)
	gap := b.now.Sub(time.UnixMilli(ms))
	switch {
	case b.chain == 0:
		return "it is the first"
	case b.state[basisField] != b.basis():
		return "what it relied on has changed: a hold, the servers, or what judges"
	case err != nil || chain != b.state[chainField] || b.o.Memory.broken && !b.p.DryRun():
		return "the last pass did not end"
	case stepped || gap < 0:
		return "the server's clock was set"
	case gap > longest(b.o.Apart):
		b.idle = true
		return fmt.Sprintf("nobody looked for %s", gap)
	}
	return ""
}

// longest is the longest gap between two looks planned so far apart.
func longest(apart time.Duration) time.Duration { return apart + max(apart, time.Second) }

// Now is when the book was opened, by the server's clock.
func (b *Book) Now() time.Time { return b.now }

// Listened is since when the witness has listened without a hold.
func (b *Book) Listened() time.Time { return time.UnixMilli(b.since) }

// Ended returns why the chain began with this pass, or "".
func (b *Book) Ended() string { return b.ended }

// State returns a field of the sweep's state.
func (b *Book) State(field string) string { return b.state[field] }

// End begins a new chain: something that the evidence relied on went away.
func (b *Book) End(ctx context.Context, why string) error {
	b.chain, b.ended = max(b.chain+1, b.now.UnixMicro()), why
	if b.p.DryRun() {
		return nil
	}
	b.o.Memory.broken = true
	return b.write(ctx, b.o.State, b.chain,
		map[string]string{chainField: strconv.FormatInt(b.chain, 10)}, []string{lookedField})
}

// Note sets fields of the sweep's state, and deletes others.
func (b *Book) Note(ctx context.Context, set map[string]string, unset ...string) error {
	for field, value := range set {
		b.state[field] = value
	}
	for _, field := range unset {
		delete(b.state, field)
	}
	if b.p.DryRun() {
		return nil
	}
	return b.write(ctx, b.o.State, 0, set, unset)
}

// Moment returns a time that the sweep noted, or zero. One later than most from now was noted
// before the server's clock was set back, and is replaced by that.
func (b *Book) Moment(ctx context.Context, field string, most time.Duration) (time.Time, error) {
	text := b.state[field]
	if text == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	at, latest := time.UnixMilli(ms), b.now.Add(most)
	if err == nil && !at.After(latest) {
		return at, nil
	}
	return latest, b.NoteMoment(ctx, field, latest)
}

// NoteMoment notes a time, by the server's clock.
func (b *Book) NoteMoment(ctx context.Context, field string, at time.Time) error {
	return b.Note(ctx, map[string]string{field: strconv.FormatInt(at.UnixMilli(), 10)})
}

// Held returns for how much longer a mass failure holds the sweep; 0: it does not.
func (b *Book) Held(ctx context.Context) (time.Duration, error) {
	until, err := b.Moment(ctx, heldField, b.o.Hold)
	return max(0, until.Sub(b.now)), err
}

// Fell holds the sweep after a mass failure: more than half, and at least 20 things could have
// fallen. The caller counts each thing as new once.
func (b *Book) Fell(ctx context.Context, newly, of int) error {
	if of < fewest || newly <= of/2 || b.p.DryRun() {
		return nil
	}
	if err := b.NoteMoment(ctx, heldField, b.now.Add(b.o.Hold)); err != nil {
		return err
	}
	return &janitor.HeldError{Reason: MassFailure, Detail: fmt.Sprintf("%d of %d were newly condemned", newly, of)}
}

// MassFailure is the reason of Fell's HeldError.
const MassFailure = "mass_failure"

// errChain: a write that had no answer landed late.
var errChain = errors.New("another chain has begun")

func (b *Book) write(ctx context.Context, key string, chain int64, set map[string]string, unset []string) error {
	err := Write(ctx, b.p, key, chain, set, unset)
	if err != nil {
		b.o.Memory.broken = true
	}
	return err
}

// Write sets fields of a hash in the slot of the eviction log, and deletes others, unless a newer
// term has begun. chain is 0 except for the state of a Book.
func Write(ctx context.Context, p Pass, key string, chain int64, set map[string]string, unset []string) error {
	var all []string
	for field, value := range set {
		all = append(all, field, "+"+value)
	}
	for _, field := range unset {
		all = append(all, field, "-")
	}
	for len(all) > 0 {
		args := []any{p.Epoch(), chain}
		for bytes := 0; len(all) > 0 && len(args) < perWrite && bytes < pageBytes; all = all[2:] {
			args, bytes = append(args, all[0], all[1]), bytes+len(all[0])+len(all[1])
		}
		err := p.Call(ctx, func(ctx context.Context) error {
			done, err := writeScript.Run(ctx, p.Client(), []string{p.Layout().Log(), key}, args...).Int()
			switch {
			case err == nil && done == 0:
				return janitor.ErrFenced
			case err == nil && done < 0:
				return errChain
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("proof: %s: %w", key, err)
		}
	}
	return nil
}

// Shift is for tests: the server's clock is set by d, as this process sees it.
func (m *Memory) Shift(d time.Duration) { m.own = m.own.Add(-d) }
