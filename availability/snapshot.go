package availability

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// for all replicas together
	snapshotLasts = 10 * time.Second
	// greatest age that is served while a new one is computed; older, the next poll waits for that
	snapshotServed = snapshotLasts + callTimeout
	// how long others wait for the computing replica, and after one that failed
	computingLasts  = 10 * time.Second
	computingPauses = 3 * time.Second
	computingWithin = 30 * time.Second
	askedAgain      = 25 * time.Millisecond
	// more than any snapshot has
	snapshotBytes = 200
)

// A Snapshot reports whether anybody can take work now, and how many can.
type Snapshot struct {
	Available bool `json:"available"`
	Count     int  `json:"count"`
}

type lastSnapshot struct {
	Snapshot
	from Origin
	at   time.Time
}

// answer's Age includes for how long Redis, if it is from there, may have missed commits.
func (m *Mirror) answer(s lastSnapshot, from Origin) Answer[Snapshot] {
	age := wait.Age(s.at, time.Now())
	if s.from == FromValkey {
		age = max(age, m.behind())
	}
	return Answer[Snapshot]{s.Snapshot, from, age}
}

// Snapshot is shared by all replicas. One computes it about every ten seconds; meanwhile the last
// one is served, as FromStale, for one more second. If neither Redis nor the source answers, it is
// the last one known to this process, however old.
func (m *Mirror) Snapshot(ctx context.Context) (Answer[Snapshot], error) {
	a, err := m.snapshotFor(ctx)
	origin := string(a.From)
	if err != nil {
		origin = "error"
	}
	m.metrics.reads.WithLabelValues("snapshot", origin).Inc()
	return a, err
}

func (m *Mirror) snapshotFor(ctx context.Context) (Answer[Snapshot], error) {
	last := m.lastSnapshot()
	old := wait.Age(last.at, time.Now())
	if old < snapshotLasts {
		return m.answer(last, last.from), nil
	}
	computed := m.computing.DoChan("snapshot", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), computingWithin)
		defer cancel()
		return m.computeSnapshot(ctx)
	})
	if old < snapshotServed {
		return m.answer(last, FromStale), nil
	}
	var enough <-chan time.Time // never, if there is nothing else to return
	if !last.at.IsZero() {
		timer := time.NewTimer(m.patience)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-enough:
		return m.answer(last, FromStale), nil
	case r := <-computed:
		if s, ok := r.Val.(lastSnapshot); ok && r.Err == nil {
			return m.answer(s, s.from), nil
		}
		if last.at.IsZero() {
			return Answer[Snapshot]{}, r.Err
		}
		return m.answer(last, FromStale), nil
	case <-ctx.Done():
		return Answer[Snapshot]{}, context.Cause(ctx)
	}
}

// computeSnapshot takes another replica's, or computes one unless another does: its mark lasts for
// as long as a snapshot. Redis may be down, or accept no writes: then each computes its own.
func (m *Mirror) computeSnapshot(ctx context.Context) (lastSnapshot, error) {
	for {
		stored, err := m.storedSnapshot(ctx)
		if err == nil {
			m.keepSnapshot(stored)
			return stored, nil
		}
		mine, err := m.snapshotCall(ctx, func(ctx context.Context) (bool, error) {
			return m.rdb.SetNX(ctx, m.keys.computing(), rand.Text(), computingLasts).Result()
		})
		if mine || err != nil {
			break
		}
		if !wait.For(ctx, askedAgain) {
			return lastSnapshot{}, fmt.Errorf("availability: snapshot: %w", context.Cause(ctx))
		}
	}
	found, err := m.FindAvailable(ctx, 0)
	if err != nil {
		_, _ = m.snapshotCall(ctx, func(ctx context.Context) (bool, error) {
			return m.rdb.PExpire(ctx, m.keys.computing(), computingPauses).Result()
		})
		return lastSnapshot{}, err
	}
	m.metrics.computed.Inc()
	n := len(found.Value)
	s := lastSnapshot{Snapshot: Snapshot{n > 0, n}, from: found.From, at: time.Now()}
	m.keepSnapshot(s)
	text, _ := json.Marshal(s.Snapshot) // two plain fields
	_, err = m.snapshotCall(ctx, func(ctx context.Context) (bool, error) {
		return true, m.rdb.Set(ctx, m.keys.snapshot(), text, snapshotLasts).Err()
	})
	if err != nil {
		m.log.Debug("a snapshot is not stored: other replicas compute their own", "error", err)
	}
	return s, nil
}

// snapshotCall gives a frozen Redis no more than its time.
func (m *Mirror) snapshotCall(
	ctx context.Context, f func(ctx context.Context) (bool, error),
) (done bool, err error) {
	err = m.redis.do(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, m.patience)
		defer cancel()
		done, err = f(ctx)
		return err
	})
	return done, err
}

// storedSnapshot returns redis.Nil if Redis has none.
func (m *Mirror) storedSnapshot(ctx context.Context) (s lastSnapshot, err error) {
	s.from = FromValkey
	_, err = m.snapshotCall(ctx, func(ctx context.Context) (bool, error) {
		pipe := m.rdb.Pipeline()
		value := pipe.GetRange(ctx, m.keys.snapshot(), 0, snapshotBytes)
		left := pipe.PTTL(ctx, m.keys.snapshot())
		if _, err := pipe.Exec(ctx); err != nil {
			return false, err
		}
		ours := json.Unmarshal([]byte(value.Val()), &s.Snapshot) == nil &&
			s.Count >= 0 && s.Available == (s.Count > 0)
		if !ours || left.Val() <= 0 || left.Val() > snapshotLasts {
			return false, redis.Nil // not ours, or expired: compute it again
		}
		s.at = time.Now().Add(-max(0, snapshotLasts-left.Val()))
		return true, nil
	})
	return s, err
}

func (m *Mirror) keepSnapshot(s lastSnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snapshot = s
}

// dropSnapshot forgets the last one, and does not wait for one that is being computed.
func (m *Mirror) dropSnapshot() {
	m.computing.Forget("snapshot")
	m.keepSnapshot(lastSnapshot{})
}

func (m *Mirror) lastSnapshot() lastSnapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot
}
