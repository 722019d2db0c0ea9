package availability

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// for all replicas together
	snapshotLasts = 10 * time.Second
	// greatest age that is served while a new one is computed; older, the next poll waits for that
	snapshotServed = snapshotLasts + callTimeout
	// how long others wait in case the computing replica has died or failed
	computingLasts  = 3 * time.Second
	computingWithin = 30 * time.Second
	askedAgain      = 25 * time.Millisecond
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
	// Redis did not accept it: this process serves its own while it is valid
	unstored bool
	// how often changed settings dropped a snapshot
	generation int
}

func (s lastSnapshot) answer(from Origin) Answer[Snapshot] {
	return Answer[Snapshot]{s.Snapshot, from, wait.Age(s.at, time.Now())}
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
	stored, err := m.storedSnapshot(ctx)
	if err == nil {
		return stored.answer(FromValkey), nil
	}
	last := m.lastSnapshot()
	old := wait.Age(last.at, time.Now())
	if (last.unstored || !errors.Is(err, redis.Nil)) && old < snapshotLasts {
		return last.answer(last.from), nil
	}
	// Do not wait for one requested under older settings.
	computed := m.computing.DoChan(strconv.Itoa(last.generation), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), computingWithin)
		defer cancel()
		return m.computeSnapshot(ctx, last.generation)
	})
	if old < snapshotServed {
		return last.answer(FromStale), nil
	}
	var enough <-chan time.Time // never, if there is nothing else to return
	if !last.at.IsZero() {
		timer := time.NewTimer(m.patience)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-enough:
		return last.answer(FromStale), nil
	case r := <-computed:
		if s, ok := r.Val.(lastSnapshot); ok && r.Err == nil {
			return s.answer(s.from), nil
		}
		if last.at.IsZero() {
			return Answer[Snapshot]{}, r.Err
		}
		return last.answer(FromStale), nil
	case <-ctx.Done():
		return Answer[Snapshot]{}, context.Cause(ctx)
	}
}

func (m *Mirror) computeSnapshot(ctx context.Context, generation int) (lastSnapshot, error) {
	token := rand.Text()
	var mine bool
	for {
		err := m.redis.do(ctx, func() (err error) {
			// otherwise a frozen Redis takes all the time there is
			ctx, cancel := context.WithTimeout(ctx, m.patience)
			defer cancel()
			mine, err = m.rdb.SetNX(ctx, m.keys.computing(), token, computingLasts).Result()
			return err
		})
		if err != nil { // Redis is down, or accepts no writes
			break
		}
		// Another replica may have stored one meanwhile.
		stored, err := m.storedSnapshot(ctx)
		if err == nil {
			if mine {
				_ = m.rdb.Del(ctx, m.keys.computing()).Err() // otherwise it expires
			}
			return stored, nil
		}
		if mine {
			break
		}
		if !wait.For(ctx, askedAgain) {
			return lastSnapshot{}, fmt.Errorf("availability: snapshot: %w", context.Cause(ctx))
		}
	}
	if mine {
		defer m.computingOn(ctx, token)()
	}
	found, err := m.FindAvailable(ctx, 0)
	if err != nil {
		return lastSnapshot{}, err // the token stays until it expires, which makes all replicas pause
	}
	m.metrics.computed.Inc()
	n := len(found.Value)
	s := lastSnapshot{Snapshot: Snapshot{n > 0, n}, from: found.From, at: time.Now(), generation: generation}
	s.unstored = !mine || !m.storeSnapshot(ctx, token, s.Snapshot)
	m.keepSnapshot(s)
	return s, nil
}

// computingOn keeps a computation's token, so that no other replica starts one.
func (m *Mirror) computingOn(ctx context.Context, token string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work conc.WaitGroup
	work.Go(func() {
		for wait.For(ctx, computingLasts/3) {
			_, _ = m.snapshotStep(ctx, token, "") // otherwise two compute
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}

// snapshotStep stores a snapshot computed under a token, or keeps the token if text is "". It
// reports whether the token was still set.
func (m *Mirror) snapshotStep(ctx context.Context, token, text string) (stood bool, err error) {
	keys := []string{m.keys.snapshot(), m.keys.computing()}
	err = m.redis.do(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, m.patience)
		defer cancel()
		stood, err = snapshotScript.Run(ctx, m.rdb, keys, token, text, snapshotLasts.Milliseconds(),
			computingLasts.Milliseconds()).Bool()
		return err
	})
	return stood, err
}

func (m *Mirror) storeSnapshot(ctx context.Context, token string, s Snapshot) bool {
	text, err := json.Marshal(s)
	stood := false
	if err == nil {
		stood, err = m.snapshotStep(ctx, token, string(text))
	}
	if err != nil {
		m.log.Debug("a snapshot is not stored: other replicas compute their own", "error", err)
	}
	return stood && err == nil
}

// storedSnapshot returns redis.Nil if Redis has none. One from Redis becomes the last known.
func (m *Mirror) storedSnapshot(ctx context.Context) (lastSnapshot, error) {
	generation := m.lastSnapshot().generation
	s := lastSnapshot{from: FromValkey, generation: generation}
	err := m.redis.do(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, m.patience)
		defer cancel()
		pipe := m.rdb.Pipeline()
		value, left := pipe.Get(ctx, m.keys.snapshot()), pipe.PTTL(ctx, m.keys.snapshot())
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		ours := json.Unmarshal([]byte(value.Val()), &s.Snapshot) == nil &&
			s.Count >= 0 && s.Available == (s.Count > 0)
		if !ours || left.Val() <= 0 || left.Val() > snapshotLasts {
			return redis.Nil // not ours, or expired: compute it again
		}
		s.at = time.Now().Add(-max(0, snapshotLasts-left.Val()))
		return nil
	})
	if err == nil {
		m.keepSnapshot(s)
	}
	return s, err
}

func (m *Mirror) keepSnapshot(s lastSnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.generation == m.snapshot.generation {
		m.snapshot = s
	}
}

func (m *Mirror) dropSnapshot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snapshot = lastSnapshot{generation: m.snapshot.generation + 1}
}

func (m *Mirror) lastSnapshot() lastSnapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot
}
