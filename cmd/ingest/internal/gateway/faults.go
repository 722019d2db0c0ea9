package gateway

import (
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/outbox"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// FaultsSuffix ends the name of the hash of faults, after the record streams' configured name.
const FaultsSuffix = ":faults"

const (
	faultBytes = 256
	// faultsMost are some 9 MB.
	faultsMost = 10_000
	// faultsAMinute bounds all devices' faults: any peer can invent devices.
	faultsAMinute = 100
	// faultAgain is the least age at which a fault of a kind seen before replaces the stored one.
	faultAgain = time.Minute
)

//go:embed fault.lua
var faultLua string

var faultScript = redis.NewScript(faultLua)

// The index of a kind is its bit in a note.
var faultKinds = []struct {
	err  error
	kind string
}{
	{teltonika.ErrCRC, "crc"},
	{teltonika.ErrPreamble, "preamble"},
	{teltonika.ErrTooLong, "too_long"},
	{teltonika.ErrTooShort, "too_short"},
	{teltonika.ErrCount, "counts"},
	{teltonika.ErrUnknownCodec, "codec"},
	{teltonika.ErrMalformed, "malformed"},
	{errUnawaited, "unawaited"},
}

// Fault is the last fault in a device's data.
type Fault struct {
	At    int64  `json:"at"` // unix ms
	Kind  string `json:"kind"`
	Error string `json:"error"`
	Bytes string `json:"bytes"` // hex, of the frame's beginning
	Peer  string `json:"peer"`
}

// faults shows operators the errors in devices' data. Nothing depends on it, so nobody waits.
type faults struct {
	notes *notes
	log   *slog.Logger
	box   *outbox.Outbox[storedFault]
	lines perMinute
}

type storedFault struct {
	imei  string
	fault Fault
}

func newFaults(client redis.UniversalClient, key string, notes *notes, log *slog.Logger) *faults {
	writes := streak.New(log, "faults of devices cannot be stored", "faults of devices are stored again",
		"key", key)
	write := func(ctx context.Context, batch []storedFault) error {
		one := batch[0]
		value, err := json.Marshal(one.fault)
		if err == nil {
			err = faultScript.Run(ctx, client, []string{key}, one.imei, value, faultsMost).Err()
		}
		return err
	}
	return &faults{notes: notes, log: log, box: outbox.New(outbox.Config[storedFault]{
		Write: write, Writes: writes, Within: storeTime, Most: faultsAMinute, Batch: 1,
	})}
}

func (s *session) fault(err error, frame []byte) {
	for bit, k := range faultKinds {
		if errors.Is(err, k.err) {
			s.g.faults.note(s.origin, 1<<bit, k.kind, err, frame)
			return
		}
	}
}

func (f *faults) note(from origin, bit uint16, kind string, why error, frame []byte) {
	now := time.Now()
	first, due := false, false
	f.notes.change(from.imei, func(n *note) {
		first = n.faults&bit == 0
		if due = (first || now.Sub(n.faulted) >= faultAgain) && f.may(); due {
			n.faults |= bit
			n.faulted = now
		}
	})
	if !due {
		return
	}
	one := Fault{
		At: now.UnixMilli(), Kind: kind, Error: why.Error(), Peer: from.peer,
		Bytes: hex.EncodeToString(frame[:min(len(frame), faultBytes)]),
	}
	if first {
		f.log.Warn("device sends what is wrong", "imei", from.imei, "peer", from.peer,
			"kind", kind, "error", one.Error, "bytes", one.Bytes)
	}
	f.box.Add(storedFault{from.imei, one}) // or Redis is away
}

func (f *faults) may() bool {
	n, _ := f.lines.next()
	if n == faultsAMinute+1 {
		f.log.Warn("too many faults of devices, the rest of this minute's are not logged")
	}
	return n <= faultsAMinute
}

// perMinute counts what anybody can cause, so that it fills no log.
type perMinute struct {
	mu    sync.Mutex
	since time.Time // of the current minute
	count int
}

// next returns an event's number within its minute, from 1, and how many the last one had.
func (m *perMinute) next() (n, before int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.since) >= time.Minute {
		before, m.since, m.count = m.count, now, 0
	}
	m.count++
	return m.count, before
}
