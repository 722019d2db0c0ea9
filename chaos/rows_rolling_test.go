package chaos

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// rollingRows change a fleet replica by replica, while devices go on.
var rollingRows = []row{
	{37, "RollingSettingsAndPassword", false, 60, nil, under(func() fault { return &rolling{} }, func(w *environment, v *judge.Verdict) {
		require.Equal(w.T, v.Evicted(""), v.Evicted("ghost"), "somebody who lives was evicted")
		require.Equal(w.T, swept, v.Evicted("ghost"))
		require.Contains(w.T, reasonsOf(v), "settings")
		w.acknowledged()
	})},
}

// rolling starts each replica again with slower heartbeats and a new password, forgets the old
// password, and then goes back to the usual settings.
type rolling struct {
	calm
	looks atomic.Int64 // at entries of devices that do nothing
}

const service = "service"

func (*rolling) setup(w *environment) {
	require.NoError(w.T, w.acl(service, "on", ">old", ">new", "~*", "&*", "+@all").Err())
	for _, id := range []string{"one", "two", "three"} {
		w.Logins[id] = service + ":old@"
	}
}

func (f *rolling) fail(w *environment) {
	begun, silent := time.Now(), w.silent()
	for _, r := range w.Replicas() {
		f.counts(r, silent)
	}
	usual := maps.Clone(w.Settings)
	w.Settings["HEARTBEAT_INTERVAL"], w.Settings["HEARTBEAT_TTL"] = slowInterval.String(), slowTTL.String()
	for range 3 {
		id := w.Replicas()[0].ID // the oldest
		w.Logins[id] = service + ":new@"
		f.roll(w, silent)
		w.doubted("settings")
		w.SlowerSettings(w.Replicas()[2], slowInterval, slowTTL)
		w.Moves()
		harness.Lasting(harness.Interval)
	}
	require.NoError(w.T, w.acl(service, "<old").Err())
	for _, r := range w.Replicas() {
		f.hit(r.Proxy.Reset()) // every connection is made anew
	}
	w.Moves()
	maps.Copy(w.Settings, usual)
	for range 3 {
		w.SlowerSettingsEnd(w.Replicas()[0])
		f.roll(w, silent)
		w.Moves()
		harness.Lasting(harness.Interval)
	}
	took := time.Since(begun)
	w.heals(time.Now())
	w.Plant("ghost", swept, true)
	harness.Eventually(w.T, "what is dead is swept", func() bool { return w.SCard(w.T.Context(), w.Layout.Devices("ghost")).Val() == 0 })

	each := float64(f.looks.Load()) / float64(len(silent))
	w.remark("%.1f looks at each silent device's entry in %v", each, took.Round(time.Second))
	require.Less(w.T, each, took.Seconds()/harness.Interval.Seconds()+1, "at most once an interval")
}

// roll lets the oldest replica end, and start again with the settings as they are now. Its silent
// devices come back to it.
func (f *rolling) roll(w *environment, silent map[string]string) {
	old := w.Replicas()[0]
	require.Zero(w.T, w.Terminate(old), old.Log())
	again := w.Start(old.ID)
	f.counts(again, silent)
	f.hit(1)
	var back []int
	for i := 0; i < w.Fleet.Len(); i += 2 {
		if w.Fleet.At(i) == "" {
			back = append(back, i)
		}
	}
	require.NoError(w.T, w.Fleet.ConnectAll(w.T.Context(), back, func(int) *harness.Replica { return again }))
}

// counts counts how often a replica reads the entries of silent devices.
func (f *rolling) counts(r *harness.Replica, silent map[string]string) {
	r.Proxy.Answers(func(r proxy.Request) bool {
		if len(r) > 2 && r[0] == "HMGET" && r[1] == harness.KeyNames.Registry() {
			for _, imei := range r[2:] {
				if _, is := silent[imei]; is {
					f.looks.Add(1)
				}
			}
		}
		return false
	})
}

// acknowledged: every record that a device was told to be stored is in the stream.
func (w *environment) acknowledged() {
	w.T.Helper()
	stored := make(map[string]int)
	for _, e := range w.XRange(w.T.Context(), "telemetry:teltonika", "-", "+").Val() {
		stored[fmt.Sprint(e.Values["imei"])]++
	}
	total := 0
	for imei, n := range w.Fleet.Acknowledged() {
		require.GreaterOrEqual(w.T, stored[imei], n, "records of %s were acknowledged and are not there", imei)
		total += n
	}
	require.Positive(w.T, total)
	w.remark("%d records acknowledged, none lost", total)
}
