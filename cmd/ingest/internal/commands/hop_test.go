package commands

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// sender returns a Sender that follows the registry; every instance is alive.
func (b *bench) sender() *Sender {
	return &Sender{Client: b.rdb, Layout: b.layout, Lookup: func(ctx context.Context, imei string) (registry.Owner, error) {
		owner, err := b.rdb.HGet(ctx, b.layout.Registry(), imei).Result()
		if errors.Is(err, redis.Nil) {
			return registry.Owner{}, registry.ErrNotRegistered
		}
		return registry.Owner{Instance: owner, Live: true}, err
	}}
}

// outcomeLog holds the commands that devices executed, by text, and the outcomes, by id.
type outcomeLog struct {
	mu       sync.Mutex
	executed map[string]int
	outcomes map[string]Outcome
}

// hops moves a device between places until ctx ends, also back to the same one, while commands
// are under way. Old sockets are closed at once, later or last.
func (l *outcomeLog) hops(ctx context.Context, d *sim.Device, rnd *rand.Rand, places []*instance, joined chan<- struct{}) error {
	for ctx.Err() == nil {
		if _, err := d.Connect(context.WithoutCancel(ctx), places[rnd.IntN(len(places))].addr); err != nil {
			return err
		}
		if rnd.IntN(4) > 0 {
			d.DropStale()
		}
		if _, err := d.Send(context.WithoutCancel(ctx), teltonika.Codec8, sim.NewTrack(1).Next(1)...); err != nil {
			return err
		}
		if joined != nil {
			close(joined)
			joined = nil
		}
		stay, leave := context.WithTimeout(ctx, time.Duration(rnd.IntN(300))*time.Millisecond)
		_ = d.Follow(stay, func(c sim.Command, say sim.Say) error {
			l.mu.Lock()
			l.executed[c.Text]++
			l.mu.Unlock()
			return say(c.Codec, d.Executes(c, d.IMEI()+" did "+c.Text))
		})
		leave()
	}
	return nil
}

func TestCommandsForDevicesThatHopHaveOneOutcomeEach(t *testing.T) {
	t.Parallel()
	const devices, commands = 12, 20
	b := setup(t, redistest.Shared(t))
	places := []*instance{b.instance("a"), b.instance("b")}
	sender := b.sender()
	l := &outcomeLog{executed: map[string]int{}, outcomes: map[string]Outcome{}}

	var all sync.WaitGroup
	for n := range devices {
		d := sim.New(fmt.Sprintf("%015d", 350_000_000_000_000+n), patience)
		t.Cleanup(d.Close)
		ctx, enough := context.WithCancel(t.Context())
		joined := make(chan struct{})
		all.Go(func() { assert.NoError(t, l.hops(ctx, d, rand.New(rand.NewPCG(1, uint64(n))), places, joined)) })
		all.Go(func() {
			defer enough()
			<-joined
			for i := range commands {
				id := fmt.Sprintf("%s-%d", d.IMEI(), i)
				o, err := sender.Send(t.Context(), Command{ID: id, IMEI: d.IMEI(), Codec: 12 + i%2*2, Text: id, Expires: time.Now().Add(time.Second)})
				if errors.Is(err, registry.ErrNotRegistered) { // between two places
					continue
				}
				assert.NoError(t, err)
				l.mu.Lock()
				l.outcomes[id] = o
				l.mu.Unlock()
			}
		})
	}
	all.Wait()

	of, tries := map[Status]int{}, map[string]bool{}
	for id, o := range l.outcomes {
		of[o.Status]++
		last := 1
		if _, try, again := strings.Cut(o.ID, "."); again {
			var err error
			last, err = strconv.Atoi(try)
			require.NoError(t, err)
		}
		for try := 1; try <= last; try++ {
			if tries[id] = true; try > 1 {
				tries[fmt.Sprintf("%s.%d", id, try)] = true
			}
		}
		switch o.Status {
		case Answered:
			require.Equal(t, o.IMEI+" did "+id, o.Text)
			require.Equal(t, 1, l.executed[id], "%v", o)
		case Timeout:
			require.LessOrEqual(t, l.executed[id], 1, "%v", o)
		case NotConnected, Expired:
			require.Zero(t, l.executed[id], "%v", o)
		default:
			t.Errorf("unexpected: %v", o)
		}
	}
	t.Log(of, len(tries)-len(l.outcomes), "further tries")
	require.Greater(t, of[Answered], devices, "or there is nothing to judge")
	for _, o := range b.awaits(len(tries), "a", "b") {
		require.True(t, tries[o.ID], "nobody asked for %v, or it has two outcomes", o)
		delete(tries, o.ID)
	}
}
