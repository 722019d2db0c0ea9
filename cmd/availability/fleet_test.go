package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAnyReplicaShowsTheWholeFleet(t *testing.T) {
	t.Parallel()
	server, db := redistest.Start(t), pgtest.Database(t)
	replicas := []*running{}
	for _, id := range []string{"one", "two"} {
		replicas = append(replicas, serving(t, on(server, db.URL, "--instance-id="+id)...))
	}
	for _, p := range replicas {
		var s inspect.Status
		p.Await(func() bool {
			s = inspect.Status{}
			code, body := p.Get("/api/v1/fleet")
			require.Equal(t, http.StatusOK, code, body)
			require.NoError(t, json.Unmarshal([]byte(body), &s))
			return s.Leader != nil && s.Leader.Address != "" && len(s.Instances) == 2 &&
				s.Instances[0].Version != "" && s.Instances[1].Version != ""
		}, "the fleet is shown")
		for i, r := range replicas {
			require.Equal(t, "availability", s.Instances[i].Program)
			require.Equal(t, r.HTTP, s.Instances[i].Address)
		}
		code, body := p.Get("/api/v1/fleet")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, `"kind": "term"`)
		code, body = p.Get("/api/v1/why?key=1")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, `"verdict": "unknown"`)
		code, _ = p.Get("/api/v1/devices/1")
		require.Equal(t, http.StatusNotFound, code)
	}
}
