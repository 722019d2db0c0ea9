package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAnyWorkerShowsTheWholeFleetAndWhyAKeyIsGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leaks(t, server)
	workers := []*running{}
	for _, id := range []string{"one", "two"} {
		workers = append(workers, serving(t, append(on(t, server, "--instance-id="+id), quick...)...))
	}
	for _, p := range workers {
		var s inspect.Status
		p.Await(func() bool {
			s = inspect.Status{}
			code, body := p.Get("/api/v1/fleet")
			require.Equal(t, http.StatusOK, code, body)
			require.NoError(t, json.Unmarshal([]byte(body), &s))
			return s.Leader != nil && s.Leader.Address != "" && len(s.Instances) == 2 &&
				s.Instances[0].Version != "" && s.Instances[1].Version != ""
		})
		for i, w := range workers {
			require.Equal(t, "cleanup", s.Instances[i].Program)
			require.Equal(t, w.HTTP, s.Instances[i].Address)
		}
		p.Await(func() bool {
			code, body := p.Get("/api/v1/why?key=queue:reservation:bob")
			require.Equal(t, http.StatusOK, code, body)
			var why inspect.Why
			require.NoError(t, json.Unmarshal([]byte(body), &why))
			return why.Verdict == inspect.Evicted
		})
		code, body := p.Get("/api/v1/fleet")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, `"kind": "eviction"`)
		require.Contains(t, body, `orphans taken by`)
		code, body = p.Get("/api/v1/devices/1")
		require.Equal(t, http.StatusNotFound, code, body)
	}
}
