package gateway

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// faultLines returns a log's lines about devices' faults.
func faultLines(t *testing.T, log *process.Buffer) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var one map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &one))
		if one["msg"] == "device sends what is wrong" {
			all = append(all, one)
		}
	}
	return all
}

// fault returns a device's stored fault.
func (b *bench) fault(t *testing.T, imei string) (f Fault) {
	t.Helper()
	text, err := b.rdb.HGet(t.Context(), b.stream+FaultsSuffix, imei).Bytes()
	if err == redis.Nil {
		return f
	}
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &f))
	var object any
	require.NoError(t, json.Unmarshal(text, &object))
	require.NoError(t, schemas(t)("fault").Validate(object))
	return f
}

func TestWhatADeviceSendsWrongIsLoggedOnceAKindAndItsLastIsStored(t *testing.T) {
	t.Parallel()
	var log process.Buffer
	b := setup(t, redistest.Shared(t), func(c *Config) { c.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	wrong := frame(20)
	wrong[len(wrong)-1] ^= 1
	for range 3 {
		w := b.login(t, imei)
		w.send(wrong)
		w.expectEnd()
	}
	await(t, func() bool { return b.fault(t, imei).Kind == "crc" })
	lines := faultLines(t, &log)
	require.Len(t, lines, 1)
	require.Equal(t, imei, lines[0]["imei"])
	require.Equal(t, "WARN", lines[0]["level"])
	require.Equal(t, "crc", lines[0]["kind"])
	require.Equal(t, hex.EncodeToString(wrong[:faultBytes]), lines[0]["bytes"])
	require.Contains(t, lines[0]["error"], "teltonika: wrong CRC")
	require.NotEmpty(t, lines[0]["peer"])
	require.Equal(t, lines[0]["bytes"], b.fault(t, imei).Bytes)

	w := b.login(t, imei)
	for range 3 {
		w.send(junk)
		w.expect("00000001")
	}
	w.send([]byte("GET / HTTP/1.1\r\n"))
	w.expectEnd()
	await(t, func() bool { return b.fault(t, imei).Kind == "preamble" })
	var kinds []any
	for _, line := range faultLines(t, &log) {
		kinds = append(kinds, line["kind"])
	}
	require.Equal(t, []any{"crc", "malformed", "preamble"}, kinds)
	require.Empty(t, b.fault(t, "352093081452251"))
	peer := b.dial(t)
	peer.send([]byte("GET / HTTP/1.1\r\n")) // not a device
	peer.expect("00")
	require.Len(t, faultLines(t, &log), 3)
}

func TestEveryFaultHasAKind(t *testing.T) {
	t.Parallel()
	for _, r := range reasons {
		if r.reason != endFraming && r.reason != endUnknown {
			continue
		}
		known := false
		for _, k := range faultKinds {
			known = known || k.err == r.err
		}
		require.True(t, known, r.err)
	}
}

// Anybody can invent devices, so the log and Redis must stay bounded.
func TestFaultsOfManyDevicesAreBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var log process.Buffer
	key := redistest.Prefix(t) + FaultsSuffix
	f := newFaults(server.Client(), key, newNotes(), slog.New(slog.NewJSONHandler(&log, nil)))
	for i := range 10 * faultsAMinute {
		f.note(origin{imei: fmt.Sprintf("%015d", i)}, 1, "crc", teltonika.ErrCRC, nil)
	}
	require.Len(t, faultLines(t, &log), faultsAMinute)
	f.lines.since = f.lines.since.Add(-time.Minute)
	f.note(origin{imei: "999999999999999"}, 1, "crc", teltonika.ErrCRC, nil)
	require.Len(t, faultLines(t, &log), faultsAMinute+1, "a device whose fault was not shown is shown later")

	for i := range 30 {
		require.NoError(t, faultScript.Run(t.Context(), server.Client(), []string{key}, fmt.Sprint(i), "{}", 10).Err())
	}
	require.EqualValues(t, 10, server.Client().HLen(t.Context(), key).Val())
	require.True(t, server.Client().HExists(t.Context(), key, "29").Val(), "the newest is in it")
}

func TestADeviceThatDoesNotWaitForAcknowledgementsIsSeen(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	w := b.login(t, imei)
	for range 5 { // a patient device
		w.reports()
	}
	w.send(bytes.Repeat(frame(1), 3)) // once may be the network
	w.expect("000000010000000100000001")
	require.Empty(t, b.fault(t, imei))
	w = b.login(t, imei)
	w.send(bytes.Repeat(frame(1), 8))
	w.expect(strings.Repeat("00000001", 8))
	await(t, func() bool { return b.fault(t, imei).Kind == "unawaited" })
}

func TestADeviceHasAShareOfTheDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), func(c *Config) { c.MaxLen = 100 }) // so 5 of a device
	junk := func(n byte) []byte {
		return teltonika.AppendEnvelope(nil, []byte{8, 1, 0xff, 0xff, 0xff, n, 1})
	}
	other := b.login(t, "352093081452251")
	other.send(junk(0))
	other.expect("00000001")
	w := b.login(t, imei)
	for n := range byte(20) {
		w.send(junk(n))
		w.expect("00000001")
		w.send(junk(n)) // again: its acknowledgement was lost
		w.expect("00000001")
	}
	awaitCount(t, 20, b.frames("8", "repeated"))
	dead := b.entries(t, b.stream+DeadSuffix)
	require.Len(t, dead, 6)
	require.Equal(t, "352093081452251", dead[0]["imei"])
	for i, e := range dead[1:] {
		require.Equal(t, hex.EncodeToString(junk(byte(15+i))), e["raw"])
	}
	// A lost dead letter is kept again.
	require.NoError(t, b.rdb.Del(t.Context(), b.stream+DeadSuffix).Err())
	w.send(junk(19))
	w.expect("00000001")
	require.Len(t, b.entries(t, b.stream+DeadSuffix), 1)
}

func TestNotesAreBounded(t *testing.T) {
	t.Parallel()
	n := newNotes()
	for i := range 2 * manyNotes {
		n.addLetter(fmt.Sprint(i%manyNotes), letter{frame: fmt.Sprint(i), entry: fmt.Sprint(i)}, 3)
	}
	count := 0
	for _, of := range n.of {
		count += 1 + len(of.letters)
	}
	require.Equal(t, count, n.count)
	require.LessOrEqual(t, n.count, manyNotes)
	entry := n.letter(fmt.Sprint(manyNotes-1), fmt.Sprint(2*manyNotes-1))
	require.Equal(t, fmt.Sprint(2*manyNotes-1), entry, "the newest is not the one forgotten")
}
