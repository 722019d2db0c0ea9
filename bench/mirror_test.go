package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/lease"
)

// Keys of the mirror, as other services know them. All are below the prefix "".
const (
	onlineKey      = "mitras:online"
	deactivatedKey = "mitras:deactivated"
	capacityKey    = "mitra:capacity:"
	heartbeatKey   = "mitra:heartbeat:"

	isoMS    = "2006-01-02T15:04:05.000Z"
	capacity = 3  // sessions that a mitra may have
	idle     = 20 // one mitra of so many is deactivated
)

func mitra(i int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i)*2654435761, i) }

// crew is a workforce of which everybody is online and was just heard of, with up to two sessions.
func crew(n int) []availability.State {
	states := make([]availability.State, n)
	for i := range states {
		states[i] = availability.State{
			ID: mitra(i), Version: 1, Online: true, Active: i%idle != 0, Sessions: i % capacity, Seen: time.Now(),
		}
	}
	return states
}

// table is a source in memory: what is measured with it is Redis' side alone. It has what a mirror
// asks for to be seeded and fed.
type table struct {
	availability.Source
	rows []availability.State
}

// Clock is Redis' own.
func (*table) Clock() *availability.Clock { return nil }

// Repair has nothing to do: states are all that there is.
func (t *table) Repair(context.Context) ([]availability.Repaired, error) { return nil, nil }

func (*table) Settings(context.Context) (availability.Settings, error) {
	return availability.Settings{MaxCustomers: capacity, StaleAfter: 2 * time.Minute, RequirePing: true}, nil
}

// Available is asked by a read that Redis did not answer in time, on a busy machine. The read is
// tried again.
func (*table) Available(context.Context, time.Time, int, int) ([]availability.State, error) {
	return nil, errors.New("Redis did not answer in time")
}

func (s *table) Page(_ context.Context, after string, limit int) ([]availability.State, error) {
	i := 0 // rows need no order among pages but their own: the last id of a page is found again
	if after != "" {
		for i < len(s.rows) && s.rows[i].ID != after {
			i++
		}
		i++
	}
	return s.rows[min(i, len(s.rows)):min(i+limit, len(s.rows))], nil
}

func (s *table) States(_ context.Context, ids []string) (found []availability.State, err error) {
	asked := make(map[string]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	for _, row := range s.rows {
		if asked[row.ID] {
			found = append(found, row)
		}
	}
	return found, nil
}

// Feed has nothing new, now and then.
func (*table) Feed(ctx context.Context, since availability.Cursor) ([]availability.State, availability.Cursor, error) {
	if since.Xmin > 0 {
		wait.For(ctx, time.Second/4) // less than what makes reads ask the source
	}
	return nil, availability.Cursor{Xmin: 1, Life: "one"}, ctx.Err()
}

// mirror is one of ours on the rig's server, which keeps it until stop.
type mirror struct {
	*availability.Mirror
	client *redis.Client
	stop   func()
}

// mirror makes one and has it seed the server. A witness has listened for as long as it takes, so
// that silence is judged.
func (r *rig) mirror(source availability.Source) *mirror {
	o := r.srv.Options()
	client, control := redis.NewClient(o), redis.NewClient(lease.Options(o))
	m, err := availability.New(availability.Config{
		Source: source, Client: client, Control: control, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(r, err)
	now := time.Now()
	require.NoError(r, r.rdb.HSet(r.Context(), r.keys.Witness(),
		"since", now.Add(-time.Hour).UnixMilli(), "last", now.UnixMilli(), "gap", time.Hour.Milliseconds()).Err())
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { _ = m.Run(ctx) })
	stop := sync.OnceFunc(func() {
		cancel()
		work.Wait()
	})
	r.Cleanup(func() {
		stop()
		_, _ = client.Close(), control.Close()
	})
	r.until(func() bool {
		select {
		case <-m.Ready():
			return true
		default:
			return false
		}
	})
	return &mirror{m, client, stop}
}

// seeded is a mirror that nobody keeps: the server is asked by what is measured alone.
func (r *rig) seeded(rows []availability.State) *mirror {
	r.clear()
	m := r.mirror(&table{rows: rows})
	m.stop()
	return m
}

// pairs runs so many more rounds of what takes a second than of what takes a minute.
func (r *rig) pairs(ways ...way) []result {
	short := *r
	short.rounds = r.rounds * r.quick
	return short.compare(ways...)
}
