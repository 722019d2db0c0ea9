package availability

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// An Origin is where an answer came from.
type Origin string

// Origins of answers.
const (
	FromValkey   Origin = "valkey"
	FromPostgres Origin = "postgres" // Redis cannot answer, or the mirror is not whole
	FromStale    Origin = "stale"    // neither could: the last answer, Age old
)

// An Answer is a read's result and its origin.
type Answer[T any] struct {
	Value T
	From  Origin
	Age   time.Duration
}

// ErrUnavailable means that neither Redis nor the source could answer.
var ErrUnavailable = errors.New("availability: nobody can answer")

// Available is a mitra who can take work now.
type Available struct {
	ID       string `json:"id"`
	Sessions int    `json:"active_session_count"`
}

// MitraStatus is what the mirror knows about one mitra.
type MitraStatus struct {
	Version   int64 // 0: unknown
	Online    bool  // and active
	Active    bool
	Sessions  int
	Heartbeat time.Time // zero: none known
	Fresh     bool      // not silent for too long, or silence means nothing now
}

// findPage is how many mitras one script reads while other calls wait.
const findPage = 1000

// read asks Redis, or if it cannot answer, the source: at most Config.Fallbacks at once. While
// Redis may have missed commits, the source's answer wins; without one, Redis' has that time as its
// Age.
func read[T any](ctx context.Context, m *Mirror, op string,
	fromRedis, fromSource func(ctx context.Context) (T, error),
) (Answer[T], error) {
	a := Answer[T]{From: FromValkey}
	err := m.redis.do(ctx, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, m.patience)
		defer cancel()
		a.Value, err = fromRedis(ctx)
		return err
	})
	known, ask := err == nil || errors.Is(err, ErrNotFound), m.fallback
	if known {
		a.Age, ask = m.behind(), m.askBehind
	}
	if !known || a.Age > 0 {
		b := Answer[T]{From: FromPostgres}
		sourceErr := ask(ctx, func(ctx context.Context) (err error) {
			b.Value, err = fromSource(ctx)
			return err
		})
		switch {
		case sourceErr == nil, errors.Is(sourceErr, ErrNotFound):
			a, err = b, sourceErr
		case !known:
			m.metrics.reads.WithLabelValues(op, "error").Inc()
			return Answer[T]{}, fmt.Errorf("%w: redis: %w; source: %w", ErrUnavailable, err, sourceErr)
		}
	}
	m.metrics.reads.WithLabelValues(op, string(a.From)).Inc()
	return a, err
}

// fallback asks the source, as one of few at once.
func (m *Mirror) fallback(ctx context.Context, ask func(context.Context) error) error {
	waiting, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	if err := m.fallbacks.Acquire(waiting, 1); err != nil {
		return fmt.Errorf("availability: too many ask the source at once: %w", err)
	}
	defer m.fallbacks.Release(1)
	return m.truth.do(ctx, func() error { return ask(ctx) })
}

// askBehind has an answer already, so it waits no longer than for Redis.
func (m *Mirror) askBehind(ctx context.Context, ask func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	return m.fallback(short, ask)
}

// judges reports whether silence matters to reads, as to auto-offline: heartbeats are required, and
// have been for as long as a mitra may be silent, because before that no app had to send any; and
// that is longer than the pause between two of them.
func (m *Mirror) judges(s Settings) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.RequirePing && s.StaleAfter > s.PingInterval &&
		time.Since(m.required) >= s.StaleAfter && time.Since(m.free) >= s.StaleAfter
}

// stale is in ms, for the scripts; 0: silence does not matter.
func (m *Mirror) stale(s Settings) int64 {
	if !m.judges(s) {
		return 0
	}
	return s.StaleAfter.Milliseconds()
}

// cutoff returns the oldest sign of life at the source that still counts, or zero if silence means
// nothing or freshness is unknown. It counts from the leader's last copy of heartbeats, less a
// HeartbeatInterval for rows locked then. Once Redis has accepted no heartbeat for as long as a
// mitra may be silent, they go to the source, and it counts from now, less two HeartbeatIntervals
// for replicas that do reach Redis.
func (m *Mirror) cutoff(s Settings) time.Time {
	if !m.judges(s) {
		return time.Time{}
	}
	m.mu.Lock()
	brought, kept := m.brought, m.kept
	m.mu.Unlock()
	var cutoff time.Time
	if !brought.IsZero() && m.clocks.check() == nil {
		cutoff = m.clocks.toSource(brought).Add(-s.StaleAfter - m.c.HeartbeatInterval)
	}
	aged := m.clocks.sourceNow().Add(-s.StaleAfter - 2*m.c.HeartbeatInterval)
	if time.Since(kept) >= s.StaleAfter && aged.After(cutoff) {
		cutoff = aged
	}
	return cutoff
}

// FindAvailable returns mitras who are online, active, not silent and have room, the least busy
// first; limit 0 returns all. Each page of a thousand is consistent in itself. Only Accept decides.
func (m *Mirror) FindAvailable(ctx context.Context, limit int) (Answer[[]Available], error) {
	s, err := m.Settings(ctx)
	if err != nil {
		return Answer[[]Available]{}, err
	}
	return read(ctx, m, "find_available", func(context.Context) ([]Available, error) {
		found, err := m.scanAvailable(ctx, s, limit) // each page has its own timeout
		if err != nil {
			return nil, err
		}
		if limit > 0 && len(found) > limit {
			found = found[:limit]
		}
		return found, nil
	}, func(ctx context.Context) ([]Available, error) {
		states, err := m.source.Available(ctx, m.cutoff(s), s.MaxCustomers, limit)
		found := make([]Available, len(states))
		for i, state := range states {
			found[i] = Available{state.ID, state.Sessions}
		}
		return found, err
	})
}

// scanAvailable reports a mitra once, even if a changing set returns it twice.
func (m *Mirror) scanAvailable(ctx context.Context, s Settings, limit int) ([]Available, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*m.patience)
	defer cancel()
	keys, seen, free := m.keys.all(m.keys.Witness()), map[string]bool{}, map[int][]string{}
	read := func(ctx context.Context, cursor string) ([]string, error) {
		short, done := context.WithTimeout(ctx, m.patience)
		defer done()
		page, err := findPageScript.Run(short, m.rdb, keys, cursor, findPage, s.MaxCustomers, m.stale(s),
			limit).StringSlice()
		return page, unseeded(err)
	}
	for page, err := range m.scan(ctx, directly, 0, read) {
		if err != nil {
			return nil, err
		}
		for ; len(page) >= 2; page = page[2:] {
			sessions, _ := strconv.Atoi(page[0])
			if sessions < 0 {
				removed, _ := strconv.Atoi(page[1])
				m.tooLong(m.keys.online(), removed)
				continue
			}
			for id := range strings.SplitSeq(page[1], "\n") {
				if !seen[id] {
					seen[id] = true
					free[sessions] = append(free[sessions], id)
				}
			}
		}
	}
	all := make([]Available, 0, len(seen))
	for _, sessions := range slices.Sorted(maps.Keys(free)) {
		for _, id := range free[sessions] {
			all = append(all, Available{id, sessions})
		}
	}
	return all, nil
}

// CountOnline includes silent mitras.
func (m *Mirror) CountOnline(ctx context.Context) (Answer[int], error) {
	return read(ctx, m, "count_online", func(ctx context.Context) (int, error) {
		pipe := m.rdb.TxPipeline()
		whole, count := pipe.GetRange(ctx, m.keys.seeded(), 0, int64(len(isoMS))), pipe.SCard(ctx, m.keys.online())
		if _, err := pipe.Exec(ctx); err != nil {
			return 0, err
		}
		if parseSeen(whole.Val()).IsZero() {
			return 0, errUnseeded
		}
		return int(count.Val()), nil
	}, m.source.CountOnline)
}

// Status returns what is known about a mitra. ErrNotFound.
func (m *Mirror) Status(ctx context.Context, id string) (Answer[MitraStatus], error) {
	return m.status(ctx, "status", id)
}

// Reachable reports whether a mitra is online, active and not silent; false if unknown.
func (m *Mirror) Reachable(ctx context.Context, id string) (Answer[bool], error) {
	a, err := m.status(ctx, "reachable", id)
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return Answer[bool]{a.Value.Online && a.Value.Active && a.Value.Fresh, a.From, a.Age}, err
}

func (m *Mirror) status(ctx context.Context, op, id string) (Answer[MitraStatus], error) {
	id = strings.ToLower(id)
	s, err := m.Settings(ctx)
	if err != nil {
		return Answer[MitraStatus]{}, err
	}
	return read(ctx, m, op, func(ctx context.Context) (MitraStatus, error) {
		return m.statusHere(ctx, id, s)
	}, func(ctx context.Context) (MitraStatus, error) {
		states, err := m.source.States(ctx, []string{id})
		if err != nil {
			return MitraStatus{}, err
		}
		if len(states) == 0 {
			return MitraStatus{}, ErrNotFound
		}
		st := states[0]
		return MitraStatus{
			st.Version, st.working(), st.Active, st.Sessions, st.Seen, !st.Seen.Before(m.cutoff(s)),
		}, nil
	})
}

func (m *Mirror) statusHere(ctx context.Context, id string, s Settings) (MitraStatus, error) {
	out, err := statusScript.Run(ctx, m.rdb, m.keys.all(m.keys.Witness()), id, m.stale(s)).Slice()
	if err != nil {
		return MitraStatus{}, unseeded(err)
	}
	if len(out) == 0 {
		return MitraStatus{}, ErrNotFound
	}
	if len(out) != 6 {
		return MitraStatus{}, fmt.Errorf("availability: status: unexpected answer %v", out)
	}
	is := func(i int) bool { return out[i] == int64(1) }
	sessions, _ := out[2].(int64)
	at, _ := out[3].(string)
	text, _ := out[5].(string)
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		version = 0 // somebody else wrote it
	}
	return MitraStatus{version, is(0), is(1), int(sessions), parseSeen(at), is(4)}, nil
}

var errPanic = errors.New("availability: panic")

var errUnseeded = errors.New("availability: the mirror is not whole")

const (
	tripsAfter = 5           // consecutive failures
	opensAgain = time.Second // until one trial call
)

// refusals are errors of a server that refuses some calls, mostly writes, and serves others.
var refusals = []string{"OOM", "READONLY", "MISCONF", "NOREPLICAS", "WRONGTYPE", "UNREADABLE"}

// breaker is sony/gobreaker because it has no dependencies; failsafe-go brings in gRPC and its API
// still changes. The only other need is a semaphore.
type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[any]
}

func newBreaker(name string) breaker {
	return breaker{gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name: name, Timeout: opensAgain,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripsAfter },
		// A caller that left or ran out of time proves nothing about the server.
		IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) },
		IsSuccessful: func(err error) bool { return err == nil || answered(err) },
	})}
}

// answered reports whether the server has definitely answered.
func answered(err error) bool {
	for _, known := range []error{
		errUnseeded, redis.Nil, ErrNotFound, ErrTaken, ErrFull, ErrInactive, ErrNotOnline,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	return slices.Contains(refusals, code)
}

func (b breaker) do(ctx context.Context, f func() error) (err error) {
	done, err := b.Allow()
	if err != nil {
		return err
	}
	err = errPanic
	defer func() {
		if err != nil && ctx.Err() != nil {
			done(context.Canceled)
		} else {
			done(err)
		}
	}()
	err = f()
	return err
}

func unseeded(err error) error {
	if reply, ok := errors.AsType[redis.Error](err); ok && strings.HasPrefix(reply.Error(), "UNSEEDED") {
		return errUnseeded
	}
	return err
}
