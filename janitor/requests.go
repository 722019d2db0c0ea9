package janitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/internal/together"
)

// A NotLeaderError means that only the leader can do this.
type NotLeaderError struct {
	Leader string // its instance id; "" if nobody leads
}

func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return "janitor: not the leader; nobody leads at present"
	}
	return fmt.Sprintf("janitor: not the leader; %q is", e.Leader)
}

// An UnknownSweepError means that no sweep has this name.
type UnknownSweepError struct {
	Name  string
	Known []string
}

func (e *UnknownSweepError) Error() string {
	return fmt.Sprintf("janitor: no sweep is named %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// Sweep runs one pass of each sweep, or of the named one, and returns their reports. It returns an
// UnknownSweepError on any replica, a NotLeaderError on one that does not lead or ceases to, and
// ctx' cause if that ends first; the passes then end too. A pass that is held or failed is not an
// error.
func (j *Janitor) Sweep(ctx context.Context, req Request) ([]Report, error) {
	if err := j.checkNamed(req.Sweep); err != nil {
		return nil, err
	}
	t, err := j.leader(ctx)
	if err != nil {
		return nil, err
	}
	passes := pool.NewWithResults[Report]().WithContext(ctx).WithCancelOnError().WithFirstError()
	for _, l := range t.loops {
		if req.Sweep != "" && req.Sweep != l.sweep.Name() {
			continue
		}
		passes.Go(func(ctx context.Context) (Report, error) { return l.demand(ctx, req) })
	}
	reports, err := passes.Wait()
	if errors.Is(err, errTermOver) {
		return nil, j.notLeader(ctx)
	}
	if err != nil {
		return nil, err
	}
	return reports, nil
}

func (j *Janitor) checkNamed(name string) error {
	known := make([]string, len(j.sweeps))
	for i, s := range j.sweeps {
		known[i] = s.Name()
	}
	if name == "" || slices.Contains(known, name) {
		return nil
	}
	return &UnknownSweepError{Name: name, Known: known}
}

var errTermOver = errors.New("janitor: the term is over")

func (l *loop) demand(ctx context.Context, req Request) (Report, error) {
	req.asked = true
	d := demand{ctx: ctx, req: req, reply: make(chan Report, 1)}
	select {
	case l.demands <- d:
	case <-l.t.done:
		return Report{}, errTermOver
	case <-ctx.Done():
		return Report{}, context.Cause(ctx)
	}
	select {
	case r := <-d.reply: // always: the loop answers what it has taken
		return r, nil
	case <-ctx.Done():
		return Report{}, context.Cause(ctx)
	}
}

// Resign gives up the lease, and returns when the term's work has ended. This replica does not
// contend for a lease TTL, so that another can win. Unless it leads, it returns a NotLeaderError.
func (j *Janitor) Resign(ctx context.Context) error {
	t := j.termState.Load()
	if t == nil || !t.term.Valid() {
		return j.notLeader(ctx)
	}
	j.notes.add(timeline.Event{Kind: timeline.Resign, Instance: j.instance, Why: "asked to"})
	j.elector.Resign(j.cfg.LeaseTTL)
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Leading reports whether this process leads, without asking Redis.
func (j *Janitor) Leading() bool {
	_, leads := j.elector.Term()
	return leads
}

func (j *Janitor) leader(ctx context.Context) (*termState, error) {
	t := j.termState.Load()
	if t == nil || !t.term.Valid() {
		return nil, j.notLeader(ctx)
	}
	select {
	case <-t.opened:
		return t, nil
	case <-t.done:
		return nil, j.notLeader(ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (j *Janitor) notLeader(ctx context.Context) error {
	holder, err := j.elector.Holder(ctx)
	if err != nil {
		return errors.Join(&NotLeaderError{}, err)
	}
	return &NotLeaderError{Leader: holder.Instance}
}

// Pause describes a pause. It holds every leader until it is resumed or expires. The witness is
// ticked all the same.
type Pause struct {
	Who   string    `json:"who"`
	Why   string    `json:"why"`
	Until time.Time `json:"until,omitzero"` // zero: until resumed
}

// Pause holds every leader from now on, and within a second also a pass in progress. It works on
// any replica, and fails if Until is past or Redis cannot be reached.
func (j *Janitor) Pause(ctx context.Context, p Pause) error {
	var ttl time.Duration // of SET: 0 means for ever
	if !p.Until.IsZero() {
		if ttl = time.Until(p.Until); ttl < time.Millisecond {
			return fmt.Errorf("janitor: pause: until %s is past", p.Until.Format(time.RFC3339))
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("janitor: pause: %w", err)
	}
	if err := j.cfg.Control.Set(ctx, j.layout.Paused(), text, ttl).Err(); err != nil {
		return fmt.Errorf("janitor: pause: %w", err)
	}
	j.notes.add(timeline.Event{Kind: timeline.Pause, Who: p.Who, Why: p.Why, Until: p.Until})
	j.log.Info("sweeping paused", "who", p.Who, "why", p.Why, "until", p.Until)
	j.listener.poke()
	return nil
}

// Resume ends a pause, if there is one. It works on any replica.
func (j *Janitor) Resume(ctx context.Context) error {
	n, err := j.cfg.Control.Del(ctx, j.layout.Paused()).Result()
	if err != nil {
		return fmt.Errorf("janitor: resume: %w", err)
	}
	if known := j.listener.resumed(); known || n > 0 { // the answer to an earlier one may be lost
		j.notes.add(timeline.Event{Kind: timeline.Resume})
		j.log.Info("sweeping resumed")
	}
	j.listener.poke()
	return nil
}

// longestPause is how many bytes of a pause are read.
const longestPause = 64 << 10

// readPause returns the present pause, or nil. Any value written by hand is a pause too.
func (j *Janitor) readPause(ctx context.Context) (*Pause, error) {
	pipe := j.cfg.Control.Pipeline()
	answer := askPause(ctx, pipe, j.layout.Paused())
	if err := together.Exec(ctx, pipe); err != nil {
		return nil, fmt.Errorf("janitor: read pause: %w", err)
	}
	return answer()
}

// askPause adds readPause's question to a pipeline. The returned function is called after that ran.
func askPause(ctx context.Context, pipe redis.Pipeliner, key string) func() (*Pause, error) {
	is, text := pipe.Exists(ctx, key), pipe.GetRange(ctx, key, 0, longestPause-1)
	return func() (*Pause, error) { return asPause(is, text) }
}

func asPause(is *redis.IntCmd, text *redis.StringCmd) (*Pause, error) {
	if err := is.Err(); err != nil {
		return nil, fmt.Errorf("janitor: read pause: %w", err)
	}
	if is.Val() == 0 {
		return nil, nil
	}
	if err := text.Err(); refusedScript(err) { // not a string, or not to be read, and still somebody's wish
		return &Pause{Why: err.Error()}, nil
	} else if err != nil {
		return nil, fmt.Errorf("janitor: read pause: %w", err)
	}
	var p Pause
	if json.Unmarshal([]byte(text.Val()), &p) != nil {
		p = Pause{Why: text.Val()}
	}
	p.Who, p.Why = short(p.Who), short(p.Why)
	return &p, nil
}

const longestText = 1000

func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), longestText)], "")
}

func (j *Janitor) logPause(before, now *Pause) {
	switch {
	case now != nil && (before == nil || !now.same(*before)):
		j.log.Info("sweeping is paused", "who", now.Who, "why", now.Why, "until", now.Until)
	case now == nil && before != nil:
		j.log.Info("sweeping is no longer paused", "who", before.Who, "why", before.Why)
	}
}

func (p *Pause) same(q Pause) bool { return p.Who == q.Who && p.Why == q.Why && p.Until.Equal(q.Until) }

// checkPaused accepts a reading at most fresh old. The pause of a divided registry may be on
// another server: while that does not answer, nothing is swept.
func (t *termState) checkPaused(ctx context.Context, fresh time.Duration) error {
	t.pauseMu.Lock()
	defer t.pauseMu.Unlock()
	if time.Since(t.pauseRead) >= fresh {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		p, err := t.j.readPause(call)
		if t.j.layout.Divided() && ctx.Err() == nil {
			t.j.pauses.Note(err)
			if err != nil {
				return &HeldError{Reason: heldPauseUnknown}
			}
		}
		if err != nil {
			return err
		}
		t.paused, t.pauseRead = p != nil, time.Now()
	}
	if t.paused {
		return &HeldError{Reason: heldPaused}
	}
	return nil
}
