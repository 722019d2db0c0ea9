package chaos

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// restartRows: Redis is killed and comes back with all that it had, with what it had a while ago,
// with nothing.
var restartRows = []row{
	{22, "RedisRestartedWithAOF", true, 60, nil, under(func() fault { return &serverDown{} }, nothingWent)},
	{22, "RedisRestartedWithRDB", false, 60, nil, under(func() fault { return &serverDown{forgets: true, saves: true} }, nothingWent)},
	{22, "RedisRestartedEmpty", false, 60, nil, under(func() fault { return &serverDown{forgets: true} }, nothingWent)},
}

// serverDown kills the server and starts it again, twice: down for shorter and for longer than the
// TTL.
type serverDown struct {
	calm
	forgets bool // there is no append-only file
	saves   bool // there are snapshots
}

func (f *serverDown) setup(w *environment) {
	if f.forgets {
		w.Serve(history.Followed()...)
		w.Parts = nil
		w.NextLife(w.Server, "begins")
	}
}

func (f *serverDown) fail(w *environment) {
	for _, d := range []time.Duration{harness.TTL / 2, harness.TTL + harness.Interval/2} {
		if f.saves {
			// Not while the recording has a snapshot of its own made.
			harness.Eventually(w.T, "a snapshot is saved", func() bool { return w.Save(w.T.Context()).Err() == nil })
			w.Moves() // is lost
		}
		back := w.Outage("")
		var holds []*proxy.Rule
		if f.forgets { // what was written is to be recorded before it is lost, and nobody may write before the recording goes on
			for _, l := range w.Proxies {
				holds = append(holds, l.Hold())
			}
			require.NoError(w.T, w.Stream.Caught(w.T.Context()))
		}
		w.Server.Kill()
		harness.Lasting(d)
		w.CountersBeginAnew(w.Server.Restart)
		f.hit(1)
		if f.forgets {
			w.NextLife(w.Server, "restart")
		}
		for _, h := range holds {
			h.End()
		}
		back()
		w.heals(time.Now())
	}
}
