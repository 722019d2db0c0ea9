package main

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/tracing/tracetest"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// tracedChild starts a replica that sends spans and serves devices.
func tracedChild(t *testing.T, c *tracetest.Collector, args ...string) *process.Process {
	t.Helper()
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=50"}
	return servingWith(t, env, args...)
}

func TestSpansShowARegistrationATermItsPassesAndTheirBatches(t *testing.T) {
	t.Parallel()
	server, collector := redistest.Start(t), tracetest.Start(t)
	leader := tracedChild(t, collector, on(server, append(quick, "--instance-id=ingest-1")...)...)
	require.Eventually(t, func() bool { return leader.Said("lease acquired", "epoch") != "" }, patience,
		5*time.Millisecond)
	dies := tracedChild(t, collector, on(server, append(quick, "--instance-id=ingest-2")...)...)

	asking(t, dies).connect(imei)
	await := func(names ...string) []tracetest.Span {
		require.Eventually(t, func() bool { return len(collector.Spans(names...)) > 0 }, patience,
			5*time.Millisecond, names)
		return collector.Spans(names...)
	}
	registration := await("registration")[0]
	require.Equal(t, "accepted", registration.Attributes["rollcall.outcome"])
	require.Equal(t, true, registration.Attributes["rollcall.landed"])
	require.False(t, registration.Failed)
	require.Equal(t, "ingest", registration.Resource["service.name"])
	require.Equal(t, "ingest-2", registration.Resource["service.instance.id"])

	dies.Kill()
	var batch tracetest.Span
	require.Eventually(t, func() bool { // others may have been held, or found nothing left
		return slices.ContainsFunc(collector.Spans("batch"), func(s tracetest.Span) bool {
			batch = s
			return s.Attributes["rollcall.deleted"] == int64(1)
		})
	}, patience, 5*time.Millisecond)
	var pass tracetest.Span
	require.Eventually(t, func() bool { // it ends after its batch
		return slices.ContainsFunc(collector.Spans("pass"), func(s tracetest.Span) bool {
			pass = s
			return s.ID == batch.Parent
		})
	}, patience, 5*time.Millisecond)
	require.NoError(t, leader.Signal(syscall.SIGINT))
	require.Equal(t, exitOK, leader.ExitCode(), leader.Log())
	term, open := await("term")[0], await("open")[0]

	require.Equal(t, "ingest-1", term.Resource["service.instance.id"])
	require.Empty(t, term.Parent)
	require.NotZero(t, term.Attributes["rollcall.epoch"])
	require.NotEmpty(t, term.Attributes["rollcall.end"])
	require.Equal(t, term.ID, open.Parent)
	require.Equal(t, "ingest-2", batch.Attributes["rollcall.owner"])
	require.Equal(t, int64(1), batch.Attributes["rollcall.items"])
	require.Equal(t, "DONE", batch.Attributes["rollcall.verdict"])
	require.Contains(t, batch.Attributes["rollcall.batch"], "-")
	for _, p := range collector.Spans("pass") {
		require.Empty(t, p.Parent)
		require.Equal(t, []string{term.ID}, p.Links)
		require.Equal(t, term.Attributes["rollcall.epoch"], p.Attributes["rollcall.epoch"])
		require.Nil(t, p.Attributes["rollcall.quiet"])
	}
	require.Equal(t, pass.Trace, batch.Trace)
	require.Equal(t, int64(1), pass.Attributes["rollcall.evicted"])
	require.Equal(t, "done", pass.Attributes["rollcall.outcome"])
	for _, s := range collector.Spans() {
		require.False(t, s.Failed, "%s: %s", s.Name, s.Message)
	}
	require.False(t, collector.Contains(imei), "no span names a device")
}

// A registration that Redis does not take within a second is answered, and its span continues.
func TestTheSpanOfARegistrationEndsWhenItLands(t *testing.T) {
	t.Parallel()
	server, collector := redistest.Start(t), tracetest.Start(t)
	p := tracedChild(t, collector, on(server, quick...)...)
	server.Stop()
	asking(t, p).connect(imei)
	require.Empty(t, collector.Spans("registration"))
	server.Cont()
	require.Eventually(t, func() bool { return len(collector.Spans("registration")) == 1 }, patience,
		5*time.Millisecond)
	require.Equal(t, true, collector.Spans("registration")[0].Attributes["rollcall.landed"])
}
