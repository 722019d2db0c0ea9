package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// obedient connects a device that reports once and then obeys commands.
func (p *running) obedient(imei string) *sim.Device {
	p.T.Helper()
	d := p.connect(imei)
	_, err := d.Send(p.T.Context(), teltonika.Codec8, sim.NewTrack(1).Next(1)...)
	require.NoError(p.T, err)
	p.Await(func() bool { return p.state().Registry.Pending == 0 }) // Redis has its entry
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.Follow(ctx, func(c sim.Command, say sim.Say) error { // until the socket ends
			return say(c.Codec, d.Executes(c, "did "+c.Text))
		})
	}()
	p.T.Cleanup(func() {
		cancel()
		<-done
	})
	return d
}

// command runs "ingest command".
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, complaints bytes.Buffer
	code = run(t.Context(), append([]string{"command"}, args...), nil, &out, &complaints)
	return code, out.String(), complaints.String()
}

func TestACommandReachesItsDeviceAndTheAnswerComesBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := "--redis-url=redis://" + server.Addr()
	one := serving(t, on(server, append(calm, "--instance-id=ingest-1")...)...)
	two := serving(t, on(server, append(calm, "--instance-id=ingest-2")...)...)
	one.obedient("352093081452251")
	two.obedient(imei)
	for _, codec := range []string{"12", "14"} {
		code, stdout, stderr := command(t, url, "--codec="+codec, imei, "getver", "now")
		require.Equal(t, exitOK, code, stderr)
		require.Equal(t, "did getver now\n", stdout)
	}
	// counted once the replica knows that Redis has the outcome, possibly later
	two.Await(func() bool {
		_, metrics := two.Get("/metrics")
		return strings.Contains(metrics, `ingest_commands_total{status="answered"} 2`) && strings.Contains(metrics, `ingest_commands_outstanding 0`)
	})

	code, stdout, stderr := command(t, url, "490154203237518", "getver")
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout)
	require.Equal(t, "not_connected: no instance holds 490154203237518\n", stderr)

	// Control characters are escaped, in an answer and in what somebody wrote into the registry.
	code, stdout, stderr = command(t, url, imei, "\x1b]0;owned\a\x1b[2J\r\nok \u202eltr \u009b1m \x9b ž \\")
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "did "+`\x1b]0;owned\a\x1b[2J\r\nok \u202eltr \u009b1m \x9b ž \`+"\n", stdout)
	entries := registry.Layout{}.Registry()
	require.NoError(t, server.Client().HSet(t.Context(), entries, "490154203237518", "\x1b[2J").Err())
	code, _, stderr = command(t, url, "490154203237518", "getver")
	require.Equal(t, exitFailed, code)
	require.Equal(t, `not_connected at \x1b[2J: the instance that the registry names has no heartbeat`+"\n",
		stderr)

	// An instance that stops leaves nothing; one named wrongly by the registry answers so.
	require.NoError(t, server.Client().HSet(t.Context(), entries, "490154203237518", "ingest-1").Err())
	code, _, stderr = command(t, url, "490154203237518", "getver")
	require.Equal(t, exitFailed, code)
	require.Equal(t, "not_connected at ingest-1: no socket of the device is here\n", stderr)
	two.Stop()
	require.Equal(t, exitOK, two.Ends())
	one.Await(func() bool { return server.Client().Exists(t.Context(), "commands:outbound:ingest-2").Val() == 0 })
}

func TestACommandFindsTheNumberOfPartitionsAndWaitsForADeviceThatIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one := serving(t, on(server, append(calm, "--instance-id=ingest-1", "--registry-partitions=4")...)...)
	two := serving(t, on(server, append(calm, "--instance-id=ingest-2", "--registry-partitions=4")...)...)
	said := make(chan string)
	go func() {
		_, stdout, stderr := command(t, "--redis-url=redis://"+server.Addr(), "--queue", imei, "getver")
		said <- stdout + stderr
	}()
	waiting := func(p *running) bool {
		_, metrics := p.Get("/metrics")
		return strings.Contains(metrics, "ingest_commands_waiting 1\n")
	}
	one.Await(func() bool { return waiting(one) && waiting(two) })
	two.obedient(imei)
	require.Equal(t, "did getver\n", <-said)
	code, _, stderr := command(t, "--redis-url=redis://"+server.Addr(), "--registry-partitions=8", imei, "getver")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "says 4, REGISTRY_PARTITIONS is 8")

	code, _, stderr = command(t, "--redis-url=redis://"+server.Addr(), "--queue", "--expires=1ns", "490154203237518", "getver")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, ": expired before its device connected\n")
}

func TestWhatCannotBeSentIsRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"expected an IMEI and a text": {imei},
		"IMEI: expected 15 digits":    {"--codec=14", "35630704244101", "getver"},
		"--codec":                     {"--codec=13", imei, "getver"},
		"--expires":                   {"--expires=25h", imei, "getver"},
		"--nope: no such flag":        {"--nope=1", imei, "getver"},
		"REDIS_URL":                   {imei, "getver"},
	} {
		code, stdout, stderr := command(t, args...)
		require.Equal(t, exitUsage, code, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want)
	}
	code, stdout, _ := command(t, "--help")
	require.Equal(t, exitOK, code)
	require.Contains(t, stdout, "Usage: ingest command")
}
