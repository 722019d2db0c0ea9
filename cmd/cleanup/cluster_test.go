package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

const ofACluster = `
rules:
- name: sessions
  delete: true
  keys: "session:{user}"
  keep_if:
  - exists: "user:{user}"
  grace: 1s
  cap: 100
`

func TestOnAClusterOrphansGoFromEveryMaster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	rdb := c.Client()
	const n = 60
	for i := range n {
		require.NoError(t, rdb.Set(t.Context(), fmt.Sprint("session:", i), "x", 0).Err())
		if i%3 > 0 {
			require.NoError(t, rdb.Set(t.Context(), fmt.Sprint("user:", i), "x", 0).Err())
		}
	}
	p := serving(t, append([]string{"--redis-url=redis://" + c.Nodes[0].Addr(), "--rules=" + rulesFile(t, ofACluster)}, quick...)...)
	left := func() (dead, living int64) {
		for i := range n {
			there := rdb.Exists(t.Context(), fmt.Sprint("session:", i)).Val()
			if i%3 > 0 {
				living += there
			} else {
				dead += there
			}
		}
		return dead, living
	}
	p.Await(func() bool { dead, _ := left(); return dead == 0 })
	_, living := left()
	require.Equal(t, int64(n-n/3), living)
	p.Await(func() bool { s := p.state(); return len(s.Rules) == 1 && s.Rules[0].Coverage.Complete })
	require.Equal(t, 3, p.state().Rules[0].Coverage.Masters)
	p.Stop()
	require.Equal(t, cli.ExitOK, p.Ends())
}
