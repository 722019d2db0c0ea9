package chaos

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// rollingRows change a fleet replica by replica, while devices go on.
var rollingRows = []row{
	{37, "RollingSettingsAndPassword", false, 60, nil, under(func() fault { return &rolling{} }, func(w *world, v *judge.Verdict) {
		require.Equal(w.t, v.Evicted(""), v.Evicted("ghost"), "somebody who lives was evicted")
		require.Equal(w.t, swept, v.Evicted("ghost"))
		require.Contains(w.t, reasonsOf(v), "settings")
		w.acknowledged()
	})},
}

// rolling starts each replica again with slower heartbeats and a new password, forgets the old password, and then goes back to
// the usual settings.
type rolling struct {
	calm
	looks atomic.Int64 // at entries of devices that do nothing
}

const service = "service"

func (*rolling) setup(w *world) {
	require.NoError(w.t, w.acl(service, "on", ">old", ">new", "~*", "&*", "+@all").Err())
	for _, id := range []string{"one", "two", "three"} {
		w.logins[id] = service + ":old@"
	}
}

func (f *rolling) fail(w *world) {
	begun, silent := time.Now(), w.silent()
	for _, r := range w.fleet() {
		f.counts(r, silent)
	}
	usual := maps.Clone(w.settings)
	w.settings["HEARTBEAT_INTERVAL"], w.settings["HEARTBEAT_TTL"] = slowInterval.String(), slowTTL.String()
	for range 3 {
		id := w.fleet()[0].id // the oldest
		w.logins[id] = service + ":new@"
		f.roll(w, silent)
		w.doubted("settings")
		w.slower(w.fleet()[2], slowInterval, slowTTL)
		w.moves()
		lasting(interval)
	}
	require.NoError(w.t, w.acl(service, "<old").Err())
	for _, r := range w.fleet() {
		f.hit(r.proxy.Reset()) // every connection is made anew
	}
	w.moves()
	maps.Copy(w.settings, usual)
	for range 3 {
		w.slowerEnded(w.fleet()[0])
		f.roll(w, silent)
		w.moves()
		lasting(interval)
	}
	took := time.Since(begun)
	w.heals(time.Now())
	w.plant("ghost", swept, true)
	eventually(w.t, "what is dead is swept", func() bool { return w.SCard(w.t.Context(), w.Layout.Devices("ghost")).Val() == 0 })

	each := float64(f.looks.Load()) / float64(len(silent))
	w.remark("%.1f looks at each silent device's entry in %v", each, took.Round(time.Second))
	require.Less(w.t, each, took.Seconds()/interval.Seconds()+1, "at most once an interval")
}

// roll lets the oldest replica end, and start again with the settings as they are now. Its silent devices come back to it.
func (f *rolling) roll(w *world, silent map[string]string) {
	old := w.fleet()[0]
	require.Zero(w.t, w.terminate(old), old.Log())
	again := w.start(old.id)
	f.counts(again, silent)
	f.hit(1)
	var back []int
	for i := 0; i < w.devices.Len(); i += 2 {
		if w.devices.at(i) == "" {
			back = append(back, i)
		}
	}
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), back, func(int) *replica { return again }))
}

// counts counts how often a replica reads the entries of silent devices.
func (f *rolling) counts(r *replica, silent map[string]string) {
	r.proxy.Answers(func(r proxy.Request) bool {
		if len(r) > 2 && r[0] == "HMGET" && r[1] == keyNames.Registry() {
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
func (w *world) acknowledged() {
	w.t.Helper()
	stored := make(map[string]int)
	for _, e := range w.XRange(w.t.Context(), "telemetry:teltonika", "-", "+").Val() {
		stored[fmt.Sprint(e.Values["imei"])]++
	}
	total := 0
	for imei, n := range w.devices.acknowledged() {
		require.GreaterOrEqual(w.t, stored[imei], n, "records of %s were acknowledged and are not there", imei)
		total += n
	}
	require.Positive(w.t, total)
	w.remark("%d records acknowledged, none lost", total)
}
