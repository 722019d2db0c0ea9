package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/registry"
)

// waveRows cut off all owners but the leader at one instant. Their beats are not in step, so their
// heartbeats end one after the other, over an interval.
var waveRows = []row{
	{38, "TenOfElevenCutOffBriefly", false, 20, nil, cutOffBriefly(10, 0)},
	{38, "AllHoldersCutOffBesideIdleReplicas", false, 20, nil, cutOffBriefly(2, 4)},
}

// cutOffBriefly expects that nothing goes, since the owners are back before the doubt is over. idle
// further replicas hold nothing.
func cutOffBriefly(owners, idle int) func(w *environment) {
	return func(w *environment) {
		met := &calm{}
		w.fault = met
		w.Start("one")
		lines := map[string]*harness.Proxy{}
		var ids []string
		for n := range owners {
			ids = append(ids, fmt.Sprintf("owner-%d", n))
			lines[ids[n]] = w.owner(ids[n], fmt.Sprintf("84%013d", n))
			harness.Lasting(harness.Interval / time.Duration(owners)) // out of step
		}
		w.Spread(harness.Some(0, w.Fleet.Len()))
		for n := range idle {
			w.Start(fmt.Sprintf("idle-%d", n))
		}
		w.rest(ids...)
		w.Listened()
		var speak []func()
		for id, line := range lines {
			speak = append(speak, line.Hold().End, w.Outage(id))
		}
		harness.Lasting(harness.TTL * 11 / 10)
		for id := range lines {
			if !w.beats(id) {
				met.hit(1)
			}
		}
		for _, f := range speak {
			f()
		}
		v := w.judge(ids...)
		require.Equal(w, owners, met.hits(), "not everybody fell silent: this run proves nothing")
		require.Zero(w, v.Evicted(""))
	}
}

// owner runs a registry in this process until the scenario ends, which holds one device.
func (w *environment) owner(id, imei string) (line *harness.Proxy) {
	w.Helper()
	line = w.Proxy()
	data, control := harness.Clients(line.Addr(), 0)
	r, err := registry.New(registry.Config{
		Client: data, Control: control, Instance: id, HeartbeatInterval: harness.Interval, HeartbeatTTL: harness.TTL,
		Drain: time.Nanosecond, Logger: slog.New(slog.NewTextHandler(w.Output(), nil)),
	})
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		require.NoError(w, <-ended)
		require.NoError(w, data.Close())
		require.NoError(w, control.Close())
	})
	require.NoError(w, r.Register(imei, harness.Nobody).Wait(w.Context()))
	w.Claimed(imei, id)
	return line
}
