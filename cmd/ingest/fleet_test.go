package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// fleet is what a replica says of the whole fleet; nothing while it cannot ask Redis in time.
func (p *program) fleet() (s inspect.Status) {
	p.t.Helper()
	p.told("/api/v1/fleet", &s)
	return s
}

func (p *program) told(path string, v any) {
	p.t.Helper()
	code, body := p.get(path)
	if code == http.StatusServiceUnavailable {
		p.t.Log(body)
		return
	}
	require.Equal(p.t, http.StatusOK, code, body)
	require.NoError(p.t, json.Unmarshal([]byte(body), v))
}

// happened tells whether a replica's timeline has this.
func (p *program) happened(kind timeline.Kind, instance string) bool {
	p.t.Helper()
	var told struct{ Events []timeline.Event }
	p.told("/api/v1/timeline", &told)
	return slices.ContainsFunc(told.Events, func(e timeline.Event) bool {
		return e.Kind == kind && e.Instance == instance
	})
}

func TestAnyReplicaShowsTheWholeFleetAndWhoLeadsNext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one := serving(t, append(on(server, "--instance-id=one"), quick...)...)
	one.await(func() bool { return one.state().Janitor.Leading })
	two := serving(t, append(on(server, "--instance-id=two"), quick...)...)
	d := one.connect(imei)
	two.await(func() bool {
		s := two.fleet()
		return len(s.Instances) == 2 && s.Instances[0].Version != "" && s.Instances[1].Version != "" &&
			s.Leader != nil && s.Leader.Address == one.http && s.Instances[0].Devices == 1 &&
			len(s.Passes) > 0 // the leader has said how they ended
	})
	s := two.fleet()
	require.Equal(t, "one", s.Leader.Instance)
	first := s.Leader.Epoch
	for i, p := range []*program{one, two} {
		require.Equal(t, p.http, s.Instances[i].Address)
		require.Equal(t, "ingest", s.Instances[i].Program)
		require.Equal(t, "300ms", s.Instances[i].Interval)
		require.Equal(t, "1.2s", s.Instances[i].TTL)
	}

	code, body := two.get("/api/v1/devices/" + imei)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `"owner": "one"`)
	code, _ = two.get("/api/v1/devices/1")
	require.Equal(t, http.StatusNotFound, code)
	code, body = two.get("/api/v1/why?key=" + imei)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `"verdict": "kept"`)
	code, _ = two.get("/api/v1/why")
	require.Equal(t, http.StatusBadRequest, code)

	stream, err := client.Get("http://" + two.http + "/api/v1/events")
	require.NoError(t, err)
	defer stream.Body.Close()
	one.stop()
	d.Close()
	text := bufio.NewScanner(stream.Body)
	text.Buffer(nil, 1<<20)
	for text.Scan() {
		data, ok := strings.CutPrefix(text.Text(), "data: ")
		var s inspect.Status
		if ok && json.Unmarshal([]byte(data), &s) == nil && s.Leader != nil && s.Leader.Epoch > first {
			require.Equal(t, "two", s.Leader.Instance)
			break
		}
	}
	require.NoError(t, text.Err())
	for kind, whom := range map[timeline.Kind]string{timeline.Term: "two", timeline.Resign: "one"} {
		two.await(func() bool { return two.happened(kind, whom) })
	}
}

func TestTheEmbeddedRedisShowsItsFleetToo(t *testing.T) {
	t.Parallel()
	p := serving(t)
	p.await(func() bool {
		s := p.fleet()
		return s.Leader != nil && s.Leader.Epoch > 0 && len(s.Instances) == 1 &&
			s.Instances[0].Address == p.http
	})
	p.await(func() bool { return p.happened(timeline.Term, p.state().Instance) })
}
