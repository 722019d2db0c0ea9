package availability

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
)

// Sweeps returns the work that one replica at a time does for all: auto-offline, copying heartbeats
// to the source, and reconciliation. Two at once do no harm.
func (m *Mirror) Sweeps() []janitor.Sweeper {
	return []janitor.Sweeper{
		&offline{Mirror: m},
		&sweep{m, "availability_heartbeats", m.c.HeartbeatInterval, m.mirrorHeartbeats},
		&sweep{m, "availability_reconcile", m.c.ReconcileInterval, m.reconcilePass},
	}
}

// sweep deletes nothing, so it needs neither witness nor guard.
type sweep struct {
	*Mirror
	name     string
	interval time.Duration
	run      func(ctx context.Context, p *janitor.Pass) error
}

func (s *sweep) Name() string            { return s.name }
func (s *sweep) Interval() time.Duration { return s.interval }

func (s *sweep) Run(ctx context.Context, p *janitor.Pass) error {
	if p.Owner() != "" || p.DryRun() { // mitras have no owner
		return nil
	}
	if err := s.checkPass(ctx, p); err != nil {
		return err
	}
	return s.run(ctx, p)
}

// mirrorHeartbeats copies the heartbeats of all online mitras to the source, where they survive a
// loss of Redis.
func (m *Mirror) mirrorHeartbeats(ctx context.Context, p *janitor.Pass) error {
	begun, err := m.serverTime(ctx, p.Call)
	if err != nil {
		return err
	}
	read := func(ctx context.Context, cursor string) ([]string, error) {
		return beatsScript.Run(ctx, m.rdb, m.keys.all(), cursor, p.PageSize()).StringSlice()
	}
	for page, err := range m.scan(ctx, p.Call, 2, read) {
		if err != nil {
			return fmt.Errorf("availability: read heartbeats: %w", err)
		}
		scanned, _ := strconv.Atoi(page[0])
		unreadable, _ := strconv.Atoi(page[1])
		p.AddScanned(scanned)
		p.Skip(janitor.SkipUnreadable, unreadable)
		beats := make([]Heartbeat, 0, len(page)/2)
		for page = page[2:]; len(page) >= 2; page = page[2:] {
			if at := parseSeen(page[1]); at.IsZero() {
				p.Skip(janitor.SkipUnreadable, 1)
			} else {
				beats = append(beats, Heartbeat{page[0], m.clocks.toSource(at)})
			}
		}
		if len(beats) == 0 {
			continue
		}
		n, err := m.source.MirrorHeartbeats(ctx, beats)
		if err != nil {
			return fmt.Errorf("availability: bring heartbeats to the source: %w", err)
		}
		m.metrics.mirrored.Add(float64(n))
	}
	err = p.Call(ctx, func(ctx context.Context) error {
		return m.rdb.HSet(ctx, m.keys.breaker(), heartbeatsAt, begun.UnixMilli()).Err()
	})
	if err != nil {
		return fmt.Errorf("availability: say that heartbeats are in the source: %w", err)
	}
	return nil
}

// scan yields the answers of a script that reads a page from a cursor, without the next cursor,
// which precedes at least the given number of other strings.
func (m *Mirror) scan(
	ctx context.Context, call caller, least int, read func(ctx context.Context, cursor string) ([]string, error),
) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for cursor := "0"; ; {
			var page []string
			err := call(ctx, func(ctx context.Context) (err error) {
				if page, err = read(ctx, cursor); err == nil && len(page) <= least {
					err = fmt.Errorf("unexpected answer %q", page)
				}
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			if cursor = page[0]; !yield(page[1:], nil) || cursor == "0" {
				return
			}
		}
	}
}

// pages yields a set's members, or a hash's fields and values. It removes those that are too long
// for the mirror to have written them.
func (m *Mirror) pages(ctx context.Context, call caller, key string, size int) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for page, err := range m.scan(ctx, call, 1, func(ctx context.Context, cursor string) ([]string, error) {
			return scanScript.Run(ctx, m.rdb, []string{key}, cursor, size).StringSlice()
		}) {
			if err != nil {
				yield(nil, err)
				return
			}
			if page[0] != "0" {
				kind := strings.TrimPrefix(key, m.keys.Prefix)
				n, _ := strconv.Atoi(page[0])
				m.metrics.badKeys.WithLabelValues(kind, rebuilt).Add(float64(n))
				m.log.Warn("a key of the mirror had members that are too long to be of it: they are removed",
					"key", key, "count", n)
			}
			if !yield(page[1:], nil) {
				return
			}
		}
	}
}

func (m *Mirror) serverTime(ctx context.Context, call caller) (now time.Time, err error) {
	err = call(ctx, func(ctx context.Context) (err error) {
		t, err := clockScript.Run(ctx, m.rdb, []string{m.keys.seeded()}).StringSlice()
		if err == nil {
			now, err = timeOf(t)
		}
		return err
	})
	if err != nil {
		return now, fmt.Errorf("availability: ask for the time: %w", err)
	}
	return now, nil
}

// timeOf reads an answer of the mirror's server, which dates heartbeats and seedings.
func timeOf(answer []string) (time.Time, error) {
	if len(answer) < 2 {
		return time.Time{}, fmt.Errorf("unexpected answer %v", answer)
	}
	second, err := strconv.ParseInt(answer[0], 10, 64)
	micro, microErr := strconv.ParseInt(answer[1], 10, 64)
	return time.Unix(second, micro*1000), errors.Join(err, microErr)
}

// checkPass waits for the first comparison of the clocks, which follow makes as soon as both
// servers answer.
func (m *Mirror) checkPass(ctx context.Context, p *janitor.Pass) error {
	if err := m.checkLayout(p); err != nil {
		return err
	}
	for end := time.Now().Add(2 * m.patience); ; {
		err := m.clocks.check()
		if err == nil || time.Now().After(end) || !wait.For(ctx, m.c.Tick) {
			return err
		}
	}
}

// checkLayout refuses a janitor whose witness the mirror would not know: nobody would ever be
// judged.
func (m *Mirror) checkLayout(p *janitor.Pass) error {
	if p.Layout() != m.c.Layout {
		return fmt.Errorf("availability: the janitor has the prefix %q, and the mirror %q: "+
			"both need the same Layout",
			p.Layout().Prefix, m.c.Layout.Prefix)
	}
	return nil
}

func (m *Mirror) reconcilePass(ctx context.Context, p *janitor.Pass) error {
	found, states, err := m.reconcile(ctx, p.Call)
	p.AddScanned(states)
	if errors.Is(err, errUnseeded) {
		return nil
	}
	if err != nil {
		return err
	}
	m.note(func(h *Health) { h.Drift, h.DriftAt = found, time.Now() })
	return nil
}
