package commands

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// stub implements Devices with a function.
type stub func(context.Context, gateway.Command) ([]byte, error)

func (stub) Ready(string) bool { return false }

func (f stub) Command(ctx context.Context, c gateway.Command) ([]byte, error) { return f(ctx, c) }

// never implements Devices without a device that takes commands.
func never(ctx context.Context, _ gateway.Command) ([]byte, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func command(n int, imei string) redis.XMessage {
	return redis.XMessage{ID: fmt.Sprintf("%d-0", 1_700_000_000_000+n), Values: map[string]any{"id": fmt.Sprint("c", n), "imei": imei, "text": "x"}}
}

func TestPlacesAreGivenByDevice(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	r := lone("a", b.layout, b.rdb)
	work, stop := context.WithCancel(t.Context())
	n := 0
	add := func(device int) Status {
		n++
		status, _ := r.enqueue(work, work, r.parse(r.stream, command(n, fmt.Sprintf("%015d", device))))
		return status
	}
	device := 0
	for ; r.Outstanding()+deviceMost <= outstandingMost/2; device++ {
		for range deviceMost {
			require.Empty(t, add(device))
		}
		require.Equal(t, Busy, add(device), "it has its places")
	}
	for r.Outstanding() < outstandingMost/2 {
		require.Empty(t, add(device))
	}
	for device++; r.Outstanding() < outstandingMost; device++ {
		require.Empty(t, add(device))
		require.Equal(t, Busy, add(device), "half of all places are taken")
	}
	require.Equal(t, Busy, add(device+1), "all are")
	status, _ := r.enqueue(work, work, r.parse(r.stream, command(1, fmt.Sprintf("%015d", 0))))
	require.Empty(t, status, "one that is read again is not refused")
	require.Equal(t, outstandingMost, r.Outstanding())
	stop() // what waits finds its entry gone
	r.senders.Wait()
	require.Zero(t, r.Outstanding())
}

func TestCommandsForADeviceThatTakesNoneAreInNobodysWay(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a := b.instance("a")
	quiet := &tracker{Device: sim.New(other, patience), t: t}
	t.Cleanup(quiet.Close)
	quiet.joins(a) // a handshake and nothing more: no command is written to it
	d := a.connects(imei)
	d.obeys()
	const many = outstandingMost + 50
	pipe := b.rdb.Pipeline()
	for i := range many {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: Outbound(b.layout, "a"), Values: []any{
			"id", fmt.Sprint("q", i), "imei", other, "text", "x", "expires", in(time.Hour),
		}})
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	b.adds("a", "healthy", imei, "ping")
	b.await(func() bool { return len(b.outcomes()) == many-deviceMost+1 })
	of := map[Status]int{}
	for _, o := range b.outcomes() {
		if of[o.Status]++; o.Status == Busy {
			require.Equal(t, "16 commands wait for the device already", o.Text)
		}
	}
	require.Equal(t, map[Status]int{Answered: 1, Busy: many - deviceMost}, of)
	require.Equal(t, []string{"ping"}, d.heard())
	require.Equal(t, int64(deviceMost), b.rdb.XLen(t.Context(), Outbound(b.layout, "a")).Val(), "they wait")

	quiet.reports() // and now it takes them
	quiet.obeys()
	b.awaits(many+1, "a")
	require.Len(t, quiet.heard(), deviceMost)
}

func TestWhatIsNoCommandKeepsNothingLarge(t *testing.T) {
	t.Parallel()
	m := command(1, strings.Repeat("9", 1<<20))
	m.Values["text"] = strings.Repeat("x", 1<<20)
	e := new(Reader).parse("x", m)
	require.Error(t, e.fault)
	require.Empty(t, e.Text)
	require.Equal(t, strings.Repeat("9", maxIMEI), e.IMEI)
}
