package orphan

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/slot"
	"github.com/rollcall-redis/rollcall/janitor"
)

// On a Cluster the fence, the marks and the log are on one server, and what goes is on others. So a
// delete has three steps:
//
//	intend  at home, behind the guard: the intent is noted, and in the log
//	away    on the key's own server: it is moved aside if it is as the look saw it, within evidenceFor
//	settle  at home: the intent ends, and is counted by whoever ends it, once
//
// A pass begins with the intents that an earlier one has left: what is away is settled, and what is
// not, and cannot be any more, is dropped.

// evidenceFor is how long a look counts, by the clock of the server that it looked at.
const evidenceFor = 2 * time.Second

// awayFor is how long something is kept away before it is settled, without a bin: a leader that
// dies in between is followed by another before that.
const awayFor = time.Hour

//go:embed same.lua
var sameText string

//go:embed intend.lua
var intendText string

//go:embed away.lua
var awayText string

//go:embed settle.lua
var settleText string

var (
	intendBody   = guard.NewBody(ripeText + intendText)
	awayScript   = redis.NewScript(sameText + awayText)
	settleScript = redis.NewScript(settleText)
)

func intentsKey(l guard.Layout, rule string) string { return l.Prefix + "orphan:intents:" + rule }

// An intent is one key, or one member, that is about to go.
type intent struct {
	ID     string `json:"id"`
	Name   string `json:"name"` // of the candidate
	Counts int    `json:"counts"`
	// the intent that has to be carried out before this one
	First   string     `json:"first,omitempty"`
	Key     string     `json:"key"`
	Member  []string   `json:"member,omitempty"` // the command that removes it
	Aside   string     `json:"aside"`
	Until   int64      `json:"until"` // the last ms at which it may go, by its server's clock
	Expires int64      `json:"expires"`
	Pass    int64      `json:"pass"` // when the pass began (ms)
	Seen    [][]string `json:"seen"`
}

// aside is the name under which a key is kept, in its own slot unless the key has odd braces.
func aside(id, key string) string {
	_, behind, _ := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(behind, "}"); !closed || tag == "" {
		key = "{" + key + "}"
	}
	return "orphan:bin:" + id + ":" + key
}

// clocks are the times of all servers, by address, before a look.
func (x *pass) clocks(ctx context.Context) (map[string]time.Time, error) {
	all := make(map[string]time.Time, len(x.servers.masters))
	for i := range x.servers.masters {
		s := &x.servers.masters[i]
		err := x.Call(ctx, func(ctx context.Context) error {
			at, err := serverTime(ctx, *s)
			all[s.addr] = at
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// remotely deletes condemned candidates on a Cluster. clocks are of before the look.
func (x *pass) remotely(ctx context.Context, found []*finding, clocks map[string]time.Time) error {
	// What a server has lost by a restart, the look did not see.
	var now *topology
	err := x.Call(ctx, func(ctx context.Context) error {
		now = x.servers.again(ctx)
		return nil
	})
	if err != nil {
		return err
	}
	if err := x.servers.changed(now); err != nil {
		x.r.Coverage.Complete = false
		x.Log().Warn("servers have changed behind the last look, and nothing more goes", "rule", x.r.Rule, "error", err)
		return nil
	}
	var items []string
	for _, f := range found {
		those := x.intentsOf(f, clocks)
		texts := make([][2]string, len(those))
		for i, each := range those {
			text, err := json.Marshal(each)
			if err != nil {
				return fmt.Errorf("orphan: rule %q: %w", x.r.Rule, err)
			}
			texts[i] = [2]string{each.ID, string(text)}
		}
		text, err := json.Marshal(struct {
			proof
			Intents [][2]string `json:"intents"`
		}{x.proofOf(f), texts})
		if err != nil {
			return fmt.Errorf("orphan: rule %q: %w", x.r.Rule, err)
		}
		items = append(items, string(text))
	}
	if len(items) == 0 {
		return nil
	}
	// Not in one step with the delete, as on one server; but behind the look that found no sign of
	// life.
	for _, o := range x.premises {
		there := int64(0)
		err := x.Call(ctx, func(ctx context.Context) (err error) {
			there, err = x.Client().Exists(ctx, o.args[1]).Result()
			return err
		})
		if err != nil {
			return fmt.Errorf("orphan: references of rule %q: %w", x.r.Rule, err)
		}
		if there == 0 {
			return x.lostMeanwhile(ctx, found[0])
		}
	}
	answer, err := x.Pass.Delete(ctx, janitor.Batch{
		Body:  intendBody,
		Keys:  []string{marksKey(x.Layout(), x.r.Rule), intentsKey(x.Layout(), x.r.Rule)},
		Items: items,
	})
	if err != nil {
		return err
	}
	if answer.Reowned > 0 { // some were not ripe: which, only their intents tell
		x.r.Kept[changed] += answer.Reowned
	}
	return x.settleAll(ctx, true)
}

// intentsOf are the keys and the member that go with a candidate. It is the first that counts, and
// the others go only once that is away: a candidate that is no longer as it was keeps what is
// related.
func (x *pass) intentsOf(f *finding, clocks map[string]time.Time) (all []intent) {
	add := func(key string, member []string) {
		id := fmt.Sprintf("%s-%d-%d", x.r.Rule, x.Epoch(), x.sweep.intents)
		x.sweep.intents++
		s := x.servers.at(key)
		name := aside(id, key)
		if s == nil || slot.Of(name) != slot.Of(key) {
			return
		}
		each := intent{
			ID: id, Name: f.name(), Key: key, Member: member, Aside: name, Expires: -1,
			Until: clocks[s.addr].Add(x.set.evidence).UnixMilli(), Pass: x.began.UnixMilli(), Seen: [][]string{},
		}
		for _, o := range f.observations {
			if o.args[0] == "PUBSUB" || slot.Of(o.args[1]) != slot.Of(key) {
				continue
			}
			each.Seen = append(each.Seen, append([]string{o.answer}, o.args...))
			if o.args[0] == "PEXPIRETIME" && o.args[1] == key {
				each.Expires, _ = strconv.ParseInt(strings.TrimPrefix(o.answer, ":"), 10, 64)
			}
		}
		if member != nil && f.expires > 0 {
			each.Expires = f.expires
		}
		if len(all) == 0 {
			each.Counts = 1
		} else {
			each.First = all[0].ID
		}
		all = append(all, each)
	}
	if f.member != "" && !f.alone {
		add(f.key, []string{x.removal(), f.key, f.member})
	}
	for _, key := range f.gone {
		add(key, nil)
	}
	return all
}

// settleAll carries out, or only finds out about, every intent that is noted, and ends it.
func (x *pass) settleAll(ctx context.Context, carryOut bool) error {
	if i := x.unsettled; i != nil { // the answer may have been lost after it was counted in Redis
		x.unsettled = nil
		if err := x.conclude(ctx, *i, true); err != nil {
			return err
		}
	}
	var noted map[string]string
	key := intentsKey(x.Layout(), x.r.Rule)
	err := x.Call(ctx, func(ctx context.Context) (err error) {
		noted, err = x.Client().HGetAll(ctx, key).Result()
		return err
	})
	if err != nil {
		return fmt.Errorf("orphan: intents of rule %q: %w", x.r.Rule, err)
	}
	var intents []intent
	for _, text := range noted {
		var each intent
		if err := json.Unmarshal([]byte(text), &each); err != nil {
			return fmt.Errorf("orphan: %s is not Rollcall's; delete the field that cannot be read: %w", key, err)
		}
		intents = append(intents, each)
	}
	slices.SortFunc(intents, func(a, b intent) int { return cmp.Compare(b.Counts, a.Counts) })
	went := map[string]bool{"": true}
	for _, each := range intents {
		var err error
		if went[each.ID], err = x.settle(ctx, each, carryOut && went[each.First]); err != nil {
			return err // before another is settled: this one is asked about first
		}
	}
	return nil
}

// settle carries out one intent, and ends it if it is known what became of it.
func (x *pass) settle(ctx context.Context, i intent, carryOut bool) (away bool, err error) {
	away, known, err := x.away(ctx, i, carryOut)
	if err != nil || !known {
		return false, err
	}
	return away, x.conclude(ctx, i, away)
}

// conclude ends an intent of which it is known what became of it.
func (x *pass) conclude(ctx context.Context, i intent, away bool) (err error) {
	counts, entry, until := 0, "", int64(0)
	if away {
		counts = i.Counts
		if x.Bin > 0 {
			var b []byte
			if b, until, err = i.binned(x.Bin, x.set.evidence); err != nil {
				return err
			}
			entry = string(b)
		}
	}
	layout, rule := x.Layout(), x.r.Rule
	settled := 0
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		keys := []string{intentsKey(layout, rule), layout.Witness(), binKey(layout, rule), stateKey(layout, rule)}
		settled, err = settleScript.Run(ctx, x.Client(), keys, i.ID, counts, entry, until).Int()
		return err
	})
	if err != nil {
		if away {
			x.unsettled = &i
		}
		return fmt.Errorf("orphan: settle %s: %w", i.Key, err)
	}
	if !away {
		if i.Counts == 1 && settled == 1 {
			x.r.Kept[changed]++
		}
		return nil
	}
	if settled == 1 {
		x.r.Removed += counts
		x.r.Keys++
		x.AddEvicted(counts)
		x.set.removed(x.rule, guard.Answer{Deleted: counts, Reason: "1"})
	}
	if x.Bin > 0 {
		return nil
	}
	return x.Call(ctx, func(ctx context.Context) error { return x.Client().Unlink(ctx, i.Aside).Err() })
}

// away tells whether the thing of an intent is away; known is false while that may yet change.
func (x *pass) away(ctx context.Context, i intent, carryOut bool) (away, known bool, err error) {
	if carryOut {
		keys := []string{i.Key, i.Aside}
		for _, seen := range i.Seen {
			keys = append(keys, seen[2])
		}
		text, err := json.Marshal(map[string]any{"seen": i.Seen, "member": i.Member})
		if len(i.Member) == 0 {
			text, err = json.Marshal(map[string]any{"seen": i.Seen})
		}
		if err != nil {
			return false, false, fmt.Errorf("orphan: intent: %w", err)
		}
		keep := max(x.Bin, awayFor)
		said := 0
		err = x.Call(ctx, func(ctx context.Context) (err error) {
			said, err = awayScript.Run(ctx, x.Client(), keys, i.Until, keep.Milliseconds(), string(text)).Int()
			return err
		})
		if err != nil {
			return false, false, fmt.Errorf("orphan: %s: %w", i.Key, err)
		}
		return said == 1, true, nil
	}
	s := x.servers.at(i.Key)
	if s == nil {
		return false, false, nil
	}
	// The clock is asked first: from then on what is not away stays where it is.
	err = x.Call(ctx, func(ctx context.Context) error {
		at, err := serverTime(ctx, *s)
		known = at.UnixMilli() > i.Until
		return err
	})
	if err != nil {
		return false, false, err
	}
	err = x.Call(ctx, func(ctx context.Context) error {
		n, err := x.Client().Exists(ctx, i.Aside).Result()
		away = n == 1
		return err
	})
	return away, known || away, err
}

// binned is the entry of a bin for what went by an intent, and until when (ms) it stands.
func (i intent) binned(keep, evidence time.Duration) ([]byte, int64, error) {
	at := i.Until - evidence.Milliseconds()
	b := binned{
		ID: i.ID, Name: i.Name, Key: i.Key, Aside: i.Aside, Expires: float64(i.Expires), At: float64(at),
		Pass: float64(i.Pass),
	}
	if len(i.Member) > 0 {
		b.Member, b.By = &i.Member[2], i.Member[0]
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, 0, fmt.Errorf("orphan: entry of a bin: %w", err)
	}
	return text, at + keep.Milliseconds(), nil
}
