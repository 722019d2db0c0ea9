package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/logtest"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
	"github.com/rollcall-redis/rollcall/cmd/internal/tracing/tracetest"
	"github.com/rollcall-redis/rollcall/internal/process"
)

func TestALogNamesItsInstanceAndIsCalmWhileAnotherDies(t *testing.T) {
	s, collector := own(t), tracetest.Start(t)
	start := func(id string) *process.Process {
		return logtest.Program(t,
			[]string{asMain + "=1", "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_BSP_SCHEDULE_DELAY=50",
				"DATABASE_URL=" + s.db.URL, "JWT_HS256_SECRET=" + secret}, // as flags they would be warned of
			"--redis-url=redis://"+s.server.Addr(),
			"--instance-id="+id, "--http-addr=127.0.0.1:0", "--log-format=json",
			// settings under which a slow machine is not taken for a fault:
			"--heartbeat-interval=1s", "--heartbeat-ttl=6s", "--availability-lease-ttl=6s")
	}
	dies := start("availability-1")
	logtest.Await(t, dies, patience, "lease acquired")
	logtest.Await(t, dies, patience, "serving HTTP")
	stays := start("availability-2")
	logtest.Await(t, stays, patience, "serving HTTP")
	dies.Kill()
	logtest.Await(t, stays, patience, "lease acquired")
	p := &running{Program: &programtest.Program{T: t, HTTP: stays.Said("serving HTTP", "addr")}}
	code, _ := p.Get("/api/v1/mitra/status")
	require.Equal(t, 401, code, "the administrator's token is no mitra's")
	require.NoError(t, stays.Signal(syscall.SIGTERM))
	require.Equal(t, cli.ExitOK, stays.ExitCode())

	logtest.Calm(t, dies.Log(), "availability-1")
	lines := logtest.Calm(t, stays.Log(), "availability-2")
	logtest.Has(t, lines, "lease acquired")
	logtest.Has(t, lines, "traces are sent")
	logtest.Has(t, lines, "stopped")
	require.Contains(t, stays.Log(), "said goodbye")

	request := collector.Spans("GET /api/v1/mitra/status")
	require.Len(t, request, 1)
	require.True(t, request[0].Server)
	require.Equal(t, int64(401), request[0].Attributes["http.response.status_code"])
	require.Equal(t, "availability-2", request[0].Resource["service.instance.id"])
	require.NotEmpty(t, collector.Spans("pass"))
}
