package chaos

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// restartRows: Redis is killed and comes back with all that it had, with what it had a while ago, with nothing.
var restartRows = []row{
	{22, "RedisRestartedWithAOF", true, 60, nil, under(func() fault { return &serverDown{} }, nothingWent)},
	{22, "RedisRestartedWithRDB", false, 60, nil, under(func() fault { return &serverDown{forgets: true, saves: true} }, nothingWent)},
	{22, "RedisRestartedEmpty", false, 60, nil, under(func() fault { return &serverDown{forgets: true} }, nothingWent)},
}

// serverDown kills the server and starts it again, twice: down for shorter and for longer than the TTL.
type serverDown struct {
	calm
	forgets bool // there is no append-only file
	saves   bool // there are snapshots
}

func (f *serverDown) setup(w *world) {
	if f.forgets {
		w.serve(history.Followed()...)
		w.parts = nil
		w.nextLife(w.server, "begins")
	}
}

func (f *serverDown) fail(w *world) {
	for _, d := range []time.Duration{ttl / 2, ttl + interval/2} {
		if f.saves {
			// Not while the recording has a snapshot of its own made.
			eventually(w.t, "a snapshot is saved", func() bool { return w.Save(w.t.Context()).Err() == nil })
			w.moves() // is lost
		}
		back := w.away("")
		var holds []*proxy.Rule
		if f.forgets { // what was written is to be recorded before it is lost, and nobody may write before the recording goes on
			for _, l := range w.proxies {
				holds = append(holds, l.Hold())
			}
			require.NoError(w.t, w.stream.Caught(w.t.Context()))
		}
		w.server.Kill()
		lasting(d)
		w.anew(w.server.Restart)
		f.hit(1)
		if f.forgets {
			w.nextLife(w.server, "restart")
		}
		for _, h := range holds {
			h.End()
		}
		back()
		w.heals(time.Now())
	}
}
