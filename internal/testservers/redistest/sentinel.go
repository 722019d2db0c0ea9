package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// SentinelName is the Sentinels' name of their server.
const SentinelName = "rollcall"

const downAfter = 2 * time.Second

// StartSentinels starts Sentinels for the server at addr, and returns once each knows the others
// and that many replicas. A server that does not answer for two seconds is down; more than half of
// the Sentinels have to agree on that.
func StartSentinels(t testing.TB, sentinels int, addr string, replicas int) []*Server {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	var all []*Server
	for range sentinels {
		dir := t.TempDir()
		conf := filepath.Join(dir, "sentinel.conf")
		text := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s %[4]d\nsentinel down-after-milliseconds %[1]s %[5]d\n"+
			"sentinel failover-timeout %[1]s 10000\n",
			SentinelName, host, port, sentinels/2+1, downAfter.Milliseconds())
		require.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
		all = append(all, launched(t, &server{dir: dir, conf: conf}, false))
	}
	for _, s := range all {
		c := redis.NewSentinelClient(s.Options())
		t.Cleanup(func() { _ = c.Close() })
		require.Eventually(t, func() bool {
			m, err := c.Master(t.Context(), SentinelName).Result()
			return err == nil && m["num-slaves"] == strconv.Itoa(replicas) &&
				m["num-other-sentinels"] == strconv.Itoa(sentinels-1)
		}, agreeIn, pollEvery)
	}
	return all
}

// SentinelMaster returns the master's address by a Sentinel; "": it does not answer.
func SentinelMaster(t testing.TB, sentinel *Server) string {
	t.Helper()
	c := redis.NewSentinelClient(sentinel.Options())
	defer c.Close()
	at, err := c.GetMasterAddrByName(t.Context(), SentinelName).Result()
	if err != nil || len(at) != 2 {
		return ""
	}
	return net.JoinHostPort(at[0], at[1])
}
