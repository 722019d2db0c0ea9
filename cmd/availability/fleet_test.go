package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

func TestAnyReplicaShowsTheWholeFleet(t *testing.T) {
	s := own(t)
	serves := map[string]chan *running{"one": make(chan *running, 1), "two": make(chan *running, 1)}
	for id, started := range serves { // both at once, on an empty database
		go func() { started <- s.serving("--instance-id=" + id) }()
	}
	one, two := <-serves["one"], <-serves["two"]
	replicas := []*running{one, two}
	one.Await(func() bool { return one.state().Janitor.Leading != two.state().Janitor.Leading }, "one leads")
	one.mitra("a")
	two.names = one.names
	one.plays("204 {a} POST /mitra/online")
	two.plays("204 {a} POST /mitra/heartbeat")
	// An event carries a change from one replica to the other.
	one.plays(`200 admin PUT /config/heartbeat_cadence_seconds {"value": 7}`)
	two.Await(func() bool {
		_, body := two.plays("200 {a} GET /mitra/status")
		return strings.Contains(body, `"heartbeat_cadence_seconds":7`)
	}, "the other knows the setting")
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
