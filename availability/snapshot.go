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
	// snapshotLasts is for how long a snapshot is good, for all replicas together.
	snapshotLasts = 10 * time.Second
	// snapshotServed is how old a snapshot may be that is served while a new one is computed. A
	// poll that meets an older one, since nobody has polled meanwhile, waits for the new one.
	snapshotServed = snapshotLasts + callTimeout
	// computingLasts is after how long another may compute one, when one who does has died or failed.
	computingLasts = 3 * time.Second
	// computingWithin bounds a computation.
	computingWithin = 30 * time.Second
	// askedAgain is the pause between two looks for a snapshot that another replica computes.
	askedAgain = 25 * time.Millisecond
)

// A Snapshot says whether somebody can take work now, and how many can.
type Snapshot struct {
	Available bool `json:"available"`
	Count     int  `json:"count"`
}

// lastSnapshot is the last one that this process knew.
type lastSnapshot struct {
	Snapshot
	from Origin
	at   time.Time // of its computation; zero: there is none
	// unstored: Redis has not taken it. So this process serves its own for as long as one is good.
	unstored bool
	// generation counts the times that one was dropped, because settings had changed.
	generation int
}

func (s lastSnapshot) answer(from Origin) Answer[Snapshot] {
	return Answer[Snapshot]{s.Snapshot, from, time.Since(s.at)}
}

// Snapshot returns the snapshot that all replicas share. One of them computes it, about each ten
// seconds, however many ask; meanwhile the last one is served, as FromStale, for a second more.
// Where neither Redis nor the source can answer, the last one that this process knew is, whatever
// its age.
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
	age := time.Since(last.at)
	if (last.unstored || !errors.Is(err, redis.Nil)) && age < snapshotLasts { // this process has its own
		return last.answer(last.from), nil
	}
	// One that was asked for under older settings is not waited for.
	computed := m.computing.DoChan(strconv.Itoa(last.generation), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), computingWithin)
		defer cancel()
		return m.computeSnapshot(ctx, last.generation)
	})
	if age < snapshotServed {
		return last.answer(FromStale), nil
	}
	var enough <-chan time.Time // never, where there is nothing else to answer
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

// computeSnapshot computes one, unless another replica does: then it waits for that one.
func (m *Mirror) computeSnapshot(ctx context.Context, generation int) (lastSnapshot, error) {
	token := rand.Text()
	var mine bool
	for {
		err := m.redis.do(ctx, func() (err error) {
			// else a frozen Redis takes all the time there is
			ctx, cancel := context.WithTimeout(ctx, m.patience)
			defer cancel()
			mine, err = m.rdb.SetNX(ctx, m.keys.computing(), token, computingLasts).Result()
			return err
		})
		if err != nil { // Redis is away, or takes no writes
			break
		}
		// Somebody may have stored one since this process looked.
		stored, err := m.storedSnapshot(ctx)
		if err == nil {
			if mine {
				_ = m.rdb.Del(ctx, m.keys.computing()).Err() // else it expires
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
		return lastSnapshot{}, err // the token stays until it expires: so all pause
	}
	m.metrics.computed.Inc()
	n := len(found.Value)
	s := lastSnapshot{Snapshot: Snapshot{n > 0, n}, from: found.From, at: time.Now(), generation: generation}
	s.unstored = !mine || !m.storeSnapshot(ctx, token, s.Snapshot)
	m.keepSnapshot(s)
	return s, nil
}

// computingOn keeps a computation's token, so that no other replica begins one, until it is called
// off.
func (m *Mirror) computingOn(ctx context.Context, token string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work conc.WaitGroup
	work.Go(func() {
		for wait.For(ctx, computingLasts/3) {
			_, _ = m.snapshotStep(ctx, token, "") // or it expires, and two compute
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}

// snapshotStep stores a snapshot that was computed under a token, or with "" keeps the token. It
// reports whether that still stood.
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

// storeSnapshot stores one that was computed under a token, unless that was called off, and tells
// whether Redis has it.
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

// storedSnapshot is what stands in Redis, or redis.Nil. It is the last that this process knows
// then.
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
			return redis.Nil // not ours, or it has expired: it is computed again
		}
		s.at = time.Now().Add(-max(0, snapshotLasts-left.Val()))
		return nil
	})
	if err == nil {
		m.keepSnapshot(s)
	}
	return s, err
}

// keepSnapshot makes s the last one, unless its settings have changed.
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
