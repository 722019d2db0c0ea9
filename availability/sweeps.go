package availability

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/proof"
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
	var begun string
	for page, err := range m.beats(ctx, p, 0, 0) {
		if err != nil {
			return err
		}
		begun = cmp.Or(begun, page.now)
		beats := make([]Heartbeat, 0, len(page.mitras))
		for _, one := range page.mitras {
			if at := parseSeen(one.heartbeat); !at.IsZero() {
				beats = append(beats, Heartbeat{one.ID, m.clocks.toSource(at)})
			} else if one.heartbeat != "" {
				p.Skip(janitor.SkipUnreadable, 1)
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
	return proof.Write(ctx, p, m.keys.noted(), 0, map[string]string{heartbeatsAt: begun}, nil)
}

// A beatsPage is a page of online mitras.
type beatsPage struct {
	now          string // ms, by the mirror's server
	listened     time.Duration
	whole        bool
	online, late int
	mitras       []onlineMitra
}

type onlineMitra struct {
	Versioned
	heartbeat string
}

// beats reads the online mitras: all, or if silence is positive, those who have been silent for
// longer, with their versions.
func (m *Mirror) beats(
	ctx context.Context, p *janitor.Pass, silence, overdue time.Duration,
) iter.Seq2[beatsPage, error] {
	keys := m.keys.all(m.keys.Witness())
	read := func(ctx context.Context, cursor string) ([]string, error) {
		return beatsScript.Run(ctx, m.rdb, keys, cursor, p.PageSize(), silence.Milliseconds(),
			overdue.Milliseconds()).StringSlice()
	}
	return func(yield func(beatsPage, error) bool) {
		for of, err := range m.scan(ctx, p.Call, 6, read) {
			if err != nil {
				yield(beatsPage{}, fmt.Errorf("availability: read heartbeats: %w", err))
				return
			}
			num := func(i int) int { n, _ := strconv.Atoi(of[i]); return n }
			page := beatsPage{
				now: of[0], listened: time.Duration(num(1)) * time.Millisecond, whole: of[2] == "1",
				online: num(3), late: num(5),
			}
			p.AddScanned(page.online)
			p.Skip(janitor.SkipUnreadable, num(4))
			for of = of[6:]; len(of) >= 3; of = of[3:] {
				version, err := strconv.ParseInt(of[1], 10, 64)
				if silence > 0 && err != nil { // somebody else wrote it
					p.Skip(janitor.SkipUnreadable, 1)
					continue
				}
				page.mitras = append(page.mitras, onlineMitra{Versioned{of[0], version}, of[2]})
			}
			if !yield(page, nil) {
				return
			}
		}
	}
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
	if p.Layout() != m.c.Layout { // its witness would be unknown here: nobody would ever be judged
		return fmt.Errorf("availability: the janitor has the prefix %q, and the mirror %q: "+
			"both need the same Layout", p.Layout().Prefix, m.c.Layout.Prefix)
	}
	for end := time.Now().Add(2 * m.patience); ; {
		err := m.clocks.check()
		if err == nil || time.Now().After(end) || !wait.For(ctx, m.c.Tick) {
			return err
		}
	}
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
