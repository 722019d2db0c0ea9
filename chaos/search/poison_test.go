package search

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/episodes"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/lease"
)

// poison is what somebody who may write to Redis writes into one key of the layout.
type poison struct {
	name  string // of the key, without prefix and instance
	key   string
	kind  string        // of the new value
	words []string      // that it is made of
	added bool          // to what the key holds, where that is of the same kind
	life  time.Duration // of the key; 0: it never expires
}

// keys are those of a layout, each with the type that it must have. The keys of commands and
// telemetry are not among them: no sweep depends on them.
var keys = map[string]struct {
	kind string
	of   func(l guard.Layout, id string) string
}{
	"registry":   {"hash", ours(guard.Layout.Registry)},
	"heartbeat":  {"string", guard.Layout.Heartbeat},
	"devices":    {"set", guard.Layout.Devices},
	"beats":      {"hash", ours(guard.Layout.Beats)},
	"about":      {"string", guard.Layout.About},
	"roster":     {"set", ours(guard.Layout.Roster)},
	"lease":      {"string", ours(guard.Layout.Lease)},
	"epoch":      {"string", ours(epochKey)},
	"witness":    {"hash", ours(guard.Layout.Witness)},
	"contenders": {"set", ours(guard.Layout.Contenders)},
	"paused":     {"string", ours(guard.Layout.Paused)},
	"log":        {"stream", ours(guard.Layout.Log)},
	"aside":      {"stream", func(l guard.Layout, _ string) string { return l.LogAside(1) }},
	"timeline":   {"stream", ours(guard.Layout.Timeline)},
}

var kinds = []string{"string", "list", "set", "hash", "zset", "stream"}

// ours is a key that is no instance's.
func ours(key func(guard.Layout) string) func(guard.Layout, string) string {
	return func(l guard.Layout, _ string) string { return key(l) }
}

func epochKey(l guard.Layout) string {
	if l.OneSlot() {
		return l.Lease() + ":epoch"
	}
	return "{" + l.Lease() + "}:epoch"
}

var witnessFields = []string{
	"since", "last", "gap", "grace", "largest", "disagreed", "server", "replication", "connections",
	"commands", "evicted_keys", "refused", "hold", "reason", "lost", "evicted_total",
	"boot", "emptied", "refused_at", "evicted_at",
}

// word returns something that a key, a field or a member may hold. plain: an instance could be
// called so; anything else is kept for ever, since nobody knows its writer.
func word(rng *rand.Rand, now time.Time, plain bool) string {
	numbers := []string{
		"0", "1", "-1", "nan", "inf", "1e308", "0x10", "9007199254740991", "9007199254740992",
		"18446744073709551615", "99999999999999999999999999", "8999999999999999", "abc",
		fmt.Sprint(now.UnixMilli()), fmt.Sprint(now.Add(time.Hour).UnixMilli()), fmt.Sprint(now.UnixMicro()),
		fmt.Sprint(now.AddDate(0, 3, 0).UnixMicro()), fmt.Sprint(now.AddDate(3, 0, 0).UnixMicro()),
		"172800000", "60000", fmt.Sprintf("%d/9%025d", now.UnixMilli(), 7), `{"who":"x"}`,
	}
	odd := []string{"", "\x00\x1b[31m", "\xff\xfe", strings.Repeat("x", 5000)}
	switch n := rng.IntN(10); {
	case n < 7 || plain && n == 9:
		return numbers[rng.IntN(len(numbers))]
	case n < 9:
		return fmt.Sprint(rng.Uint64())
	}
	return odd[rng.IntN(len(odd))]
}

// newPoison makes up a value of some kind for a key.
func newPoison(rng *rand.Rand, name, kind string, l guard.Layout, id string, now time.Time) poison {
	p := poison{name: name, key: keys[name].of(l, id), kind: kind, added: rng.IntN(2) == 0}
	plain := name == "registry" || name == "roster"
	for range 2 + 2*rng.IntN(3) {
		p.words = append(p.words, word(rng, now, plain))
	}
	if name == "witness" && kind == "hash" {
		for i := 0; i < len(p.words); i += 2 {
			p.words[i] = witnessFields[rng.IntN(len(witnessFields))]
		}
	}
	if kind == "stream" {
		ids := []string{
			"*", "18446744073709551615-18446744073709551615", "9007199254740991-0", "1-1",
			fmt.Sprintf("%d-7", now.Add(time.Hour).UnixMicro()), fmt.Sprintf("%d-7", now.AddDate(5, 0, 0).UnixMicro()),
		}
		p.words[0] = ids[rng.IntN(len(ids))]
	}
	if rng.IntN(3) == 0 {
		p.life = time.Duration(1+rng.IntN(20)) * time.Second
	}
	return p
}

// step reports whether somebody must delete the key before all is well, as the runbook says: what
// is kept because it may be somebody's, and what may hold for long.
func (p poison) step() bool {
	if p.life > 0 {
		return false
	}
	switch p.name {
	case "heartbeat", "paused":
		return true
	case "registry", "roster", "devices":
		return p.kind != keys[p.name].kind
	case "witness":
		return p.kind == "hash" // GRACE of two days are somebody's settings
	}
	return false
}

// write writes it. A stream takes no id below its newest: then nothing is written.
func (p poison) write(ctx context.Context, c redis.UniversalClient) error {
	tx := c.TxPipeline() // the fleet writes the key too
	if is := c.Type(ctx, p.key).Val(); !p.added || is != p.kind {
		tx.Del(ctx, p.key)
	}
	w := p.words
	command := map[string][]any{
		"string": {"SET", p.key, w[0]}, "list": {"RPUSH", p.key, w[0], w[1]}, "set": {"SADD", p.key},
		"hash": {"HSET", p.key}, "zset": {"ZADD", p.key, "1", w[0]}, "stream": {"XADD", p.key, w[0], "f", w[1]},
	}[p.kind]
	if p.kind == "set" || p.kind == "hash" {
		for _, word := range w {
			command = append(command, word)
		}
	}
	tx.Do(ctx, command...)
	if p.life > 0 {
		tx.PExpire(ctx, p.key, p.life)
	}
	_, err := tx.Exec(ctx)
	if err != nil && !strings.Contains(err.Error(), "equal or smaller") && !strings.Contains(err.Error(), "exhausted") {
		return err
	}
	return nil
}

func (p poison) String() string {
	words := make([]string, len(p.words))
	for i, w := range p.words {
		words[i] = fmt.Sprintf("%.40q", w)
	}
	return fmt.Sprintf("%s becomes a %s of %s (added %v, for %s)", p.key, p.kind, strings.Join(words, " "), p.added, p.life)
}

// poison writes any value of any kind into any key.
func (f *fleet) poison(a, b int) {
	rng := rand.New(rand.NewPCG(uint64(a), uint64(b)))
	names := []string{
		"registry", "heartbeat", "devices", "beats", "beats", "about", "roster", "lease", "lease", "epoch", "epoch",
		"witness", "witness", "contenders", "paused", "log", "log", "aside", "timeline",
	}
	id := f.any(rng.IntN(1 << 16)).id
	if rng.IntN(4) == 0 {
		id = "ghost"
	}
	p := newPoison(rng, names[rng.IntN(len(names))], kinds[rng.IntN(len(kinds))], f.part(rng.IntN(f.partitions)), id, time.Now())
	f.write(p)
}

func (f *fleet) write(p poison) {
	f.say("somebody writes: %s", p)
	client := redis.NewClient(lease.Options(f.s.options))
	require.NoError(f.t, p.write(f.t.Context(), client))
	require.NoError(f.t, client.Close())
	f.paused = f.paused || p.name == "paused"
	f.forged = f.forged || p.name == "beats"
	f.poisoned = append(f.poisoned, p)
	f.mu.Lock()
	f.byHand = true
	f.mu.Unlock()
	f.s.set(func() { f.s.forged = time.Now() })
}

// cure takes the documented step for each key that needs it.
func (f *fleet) cure() {
	for _, p := range f.poisoned {
		runs := slices.ContainsFunc(f.running(), func(r *replica) bool { return strings.HasSuffix(p.key, ":"+r.id) })
		if !p.step() || p.name == "heartbeat" && runs { // its beats replace it
			continue
		}
		f.say("somebody deletes %s", p.key)
		f.s.Del(p.key)
		if p.name == "paused" {
			f.paused = false
		}
		f.s.set(func() { f.s.forged = time.Now() })
	}
	f.poisoned = nil
}

// poisonedPlan is plan with somebody in it who writes into keys.
func poisonedPlan(seed uint64) (steps []step) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for _, s := range plan(seed) {
		for rng.IntN(3) == 0 {
			steps = append(steps, step{
				what: len(events) - 1, a: rng.Uint32() >> 1, b: rng.Uint32() >> 1,
				lasting: time.Duration(rng.IntN(3000)) * time.Millisecond,
			})
		}
		steps = append(steps, s)
	}
	return steps
}

// TestSearchOfPoisonedKeys plays the steps of TestSearch beside somebody who may write to Redis.
func TestSearchOfPoisonedKeys(t *testing.T) {
	t.Parallel()
	search(poisonedPlan, episodes.Search{
		Steps: searchSteps / 3, Limit: searchTime, Enough: searchSteps / 6, Fresh: true,
	}).Run(t)
}
