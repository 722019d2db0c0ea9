package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// fleet returns a replica's status of the whole fleet, or nothing if Redis does not answer in
// time.
func (p *running) fleet() (s inspect.Status) {
	p.T.Helper()
	p.told("/api/v1/fleet", &s)
	return s
}

func (p *running) told(path string, v any) {
	p.T.Helper()
	code, body := p.Get(path)
	if code == http.StatusServiceUnavailable {
		p.T.Log(body)
		return
	}
	require.Equal(p.T, http.StatusOK, code, body)
	require.NoError(p.T, json.Unmarshal([]byte(body), v))
}

// happened reports whether a replica's timeline has this event.
func (p *running) happened(kind timeline.Kind, instance string) bool {
	p.T.Helper()
	var told struct{ Events []timeline.Event }
	p.told("/api/v1/fleet", &told)
	return slices.ContainsFunc(told.Events, func(e timeline.Event) bool {
		return e.Kind == kind && e.Instance == instance
	})
}

func TestAnyReplicaShowsTheWholeFleetAndWhoLeadsNext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one := serving(t, append(on(server, "--instance-id=one"), quick...)...)
	one.Await(func() bool { return one.state().Janitor.Leading })
	two := serving(t, append(on(server, "--instance-id=two"), quick...)...)
	d := one.connect(imei)
	two.Await(func() bool {
		s := two.fleet()
		return len(s.Instances) == 2 && s.Instances[0].Version != "" && s.Instances[1].Version != "" &&
			s.Leader != nil && s.Leader.Address == one.HTTP && s.Instances[0].Devices == 1 &&
			len(s.Passes) > 0 // the leader has reported their ends
	})
	s := two.fleet()
	require.Equal(t, "one", s.Leader.Instance)
	first := s.Leader.Epoch
	for i, p := range []*running{one, two} {
		require.Equal(t, p.HTTP, s.Instances[i].Address)
		require.Equal(t, "ingest", s.Instances[i].Program)
		require.Equal(t, "300ms", s.Instances[i].Interval)
		require.Equal(t, "1.2s", s.Instances[i].TTL)
	}

	one.Stop()
	d.Close()
	two.Await(func() bool { l := two.fleet().Leader; return l != nil && l.Instance == "two" && l.Epoch > first })
	for kind, whom := range map[timeline.Kind]string{timeline.Term: "two", timeline.Resign: "one"} {
		two.Await(func() bool { return two.happened(kind, whom) })
	}
}
