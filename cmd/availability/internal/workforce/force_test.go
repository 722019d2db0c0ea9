package workforce

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhoWasSetOfflineAndHowLongTheyHadBeenSilent(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	a := New(Config{Mitras: 1, Targets: []string{"http://one"}}).apps[0]
	silent := func(s int) any {
		if silence, known := a.silentFor(at(s)); known {
			return silence
		}
		return "unknown"
	}
	require.Equal(t, "unknown", silent(5), "nothing was acknowledged to it: a simulation before this one")
	a.acknowledged("online", answer{sent: at(10), got: at(11)})
	a.acknowledged("heartbeat", answer{sent: at(20), got: at(23)})
	require.Equal(t, 12*time.Second, silent(22), "the heartbeat was not acknowledged yet: it may have come later")
	require.Equal(t, 33*time.Second, silent(53))
	a.calls = append(a.calls, call{sent: at(60), offline: true})
	require.Equal(t, "unknown", silent(90), "it may have asked for it")
	a.acknowledged("offline", answer{sent: at(61), got: at(62)})
	require.Equal(t, "unknown", silent(61))
	require.Equal(t, 43*time.Second, silent(63))
}
