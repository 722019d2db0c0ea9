package availability

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	for page, err := range p.SetPages(ctx, m.keys.online()) {
		if err != nil {
			return fmt.Errorf("availability: read who is online: %w", err)
		}
		ids := page.Items
		if len(ids) == 0 {
			continue
		}
		p.AddScanned(len(ids))
		keys := make([]string, len(ids))
		for i, id := range ids {
			keys[i] = m.keys.heartbeat(id)
		}
		var values []any
		err := p.Call(ctx, func(ctx context.Context) (err error) {
			values, err = m.rdb.MGet(ctx, keys...).Result()
			return err
		})
		if err != nil {
			return fmt.Errorf("availability: read heartbeats: %w", err)
		}
		beats := make([]Heartbeat, 0, len(ids))
		for i, value := range values {
			text, ok := value.(string)
			if !ok {
				continue
			}
			if at := parseSeen(text); at.IsZero() || at.After(begun.Add(heartbeatAhead)) {
				p.Skip(janitor.SkipUnreadable, 1)
			} else {
				beats = append(beats, Heartbeat{ids[i], m.clocks.toSource(at)})
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

func (m *Mirror) serverTime(ctx context.Context, call caller) (now time.Time, err error) {
	err = call(ctx, func(ctx context.Context) (err error) {
		now, _, err = m.clock(ctx)
		return err
	})
	if err != nil {
		return now, fmt.Errorf("availability: ask for the time: %w", err)
	}
	return now, nil
}

// clock is the mirror's server's, which dates heartbeats and seedings. life is the id of this life
// of the server, or "" if that may not be read.
func (m *Mirror) clock(ctx context.Context) (now time.Time, life string, err error) {
	t, err := clockScript.Run(ctx, m.rdb, []string{m.keys.seeded()}).StringSlice()
	if err != nil {
		return now, "", err
	}
	if len(t) != 3 {
		return now, "", fmt.Errorf("unexpected answer %v", t)
	}
	second, err := strconv.ParseInt(t[0], 10, 64)
	micro, microErr := strconv.ParseInt(t[1], 10, 64)
	return time.Unix(second, micro*1000), t[2], errors.Join(err, microErr)
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
	if p.Layout() != m.janitors {
		return fmt.Errorf("availability: the janitor has the prefix %q, and the mirror %q: "+
			"both need the same Layout",
			p.Layout().Prefix, m.janitors.Prefix)
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
