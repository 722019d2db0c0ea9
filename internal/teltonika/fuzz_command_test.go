package teltonika

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzMessages checks DecodeMessages' contract on any body: an accepted body encodes to the same
// bytes, so nothing was misread, overlooked or invented; a refused one leaves nothing.
func FuzzMessages(f *testing.F) {
	for _, v := range loadVectors(f) {
		if v.Expect.Codec.IsCommand() {
			f.Add(v.body(f))
		}
	}
	for _, c := range commandCodecs {
		f.Add(bodyOf(f, c, randomMessages(rand.New(rand.NewPCG(9, 9)), c, 3)...))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := DecodeMessages(body)
		messages := slices.Collect(s.All())
		require.Len(t, messages, s.Len())
		if err != nil {
			require.True(t, errors.Is(err, ErrMalformed) || errors.Is(err, ErrCount) || errors.Is(err, ErrUnknownCodec), "%v", err)
			require.Equal(t, Messages{}, s)
			return
		}
		require.Len(t, messages, int(body[1]))
		require.Equal(t, body, bodyOf(t, s.Codec, messages...))
	})
}

// FuzzMessagesRoundTrip encodes messages of every shape and requires them back.
func FuzzMessagesRoundTrip(f *testing.F) {
	for i := range byte(4) {
		for _, n := range []uint8{0, 1, 30, 255} {
			f.Add(i, uint64(i), n)
		}
	}
	f.Fuzz(func(t *testing.T, codec byte, seed uint64, n uint8) {
		c := commandCodecs[codec%4]
		want := randomMessages(rand.New(rand.NewPCG(seed, uint64(codec))), c, int(n))
		frame, err := AppendMessages([]byte{keepAlive}, c, want...)
		require.NoError(t, err)
		read, err := NewReader(bytes.NewReader(frame), 1<<20).Next()
		require.NoError(t, err)
		require.Equal(t, n, read.Count)
		s, err := DecodeMessages(read.Body)
		require.NoError(t, err)
		require.Equal(t, c, s.Codec)
		require.Equal(t, want, slices.AppendSeq([]Message{}, s.All()))
		for range s.All() {
			break
		}
	})
}

// FuzzMemory requires that no decoder allocates more than a small multiple of its input, whatever
// counts and lengths that declares. The constant covers the Reader's first buffer and the errors.
func FuzzMemory(f *testing.F) {
	for _, v := range loadVectors(f) {
		b := v.bytes(f)
		f.Add(b)
		if v.Expect.Transport != "" && len(b) > datagramHeader+minBody {
			f.Add(v.body(f))
		}
	}
	empty, err := AppendBody(nil, Codec8, make([]Record, 255)...) // the most records for its size
	require.NoError(f, err)
	f.Add(empty)
	f.Add(AppendEnvelope(nil, empty))
	f.Add(bodyOf(f, Codec12, make([]Message, 255)...)) // the most messages for its size
	for _, declared := range []string{"\x08\xff\xff", "\x0c\xff\xff", "\x0c\x01\x05\x00\x0f\xff\xffx\x01"} {
		f.Add([]byte(declared)) // declares more than it has
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		limit := uint64(16*len(in) + 8<<10)
		took, sink := walk(in)
		for range 2 { // what others in this process allocate meanwhile counts too, and only adds
			if took > limit {
				again, _ := walk(in)
				took = min(took, again)
			}
		}
		require.LessOrEqual(t, took, limit, "%d bytes were walked", sink)
	})
}

// walk runs every decoder on in, and returns the bytes allocated meanwhile.
func walk(in []byte) (allocated uint64, sink int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, _ := DecodeMessages(in)
	for m := range s.All() {
		sink += len(m.Text)
	}
	var b Batch
	_ = b.Decode(in)
	r := NewReader(bytes.NewReader(in), 0)
	_, _ = r.IMEI()
	r = NewReader(bytes.NewReader(in), 0)
	for {
		frame, err := r.Next()
		if err != nil {
			break
		}
		sink += len(frame.Raw)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, sink
}
