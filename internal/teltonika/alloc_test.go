package teltonika

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// manyRecords returns a frame.
func manyRecords(c Codec, n int) []byte {
	return AppendFrame(nil, c, randomRecords(rand.New(rand.NewPCG(5, 5)), c, n)...)
}

// endless repeats the same bytes, as many as fit: frames end anywhere in a buffer.
type endless struct {
	frame []byte
	at    int
}

func (e *endless) Read(p []byte) (int, error) {
	for n := 0; n < len(p); {
		m := copy(p[n:], e.frame[e.at:])
		e.at = (e.at + m) % len(e.frame)
		n += m
	}
	return len(p), nil
}

// not parallel: AllocsPerRun counts the whole process
func TestTheSteadyStateAllocatesNothing(t *testing.T) {
	// A frame with 16-byte values is decoded twice.
	wide := slices.Repeat([]Record{{IO: NewElements(Element{ID: 1, Size: 16, Bytes: make([]byte, 16)})}}, 10)
	for _, frame := range [][]byte{
		manyRecords(Codec8, 10), manyRecords(Codec8E, 10), manyRecords(Codec16, 10), AppendFrame(nil, Codec8, wide...),
	} {
		r := NewReader(&endless{frame: append([]byte{keepAlive}, frame...)}, 0)
		var b Batch
		out := make([]byte, 0, 16<<10)
		one := func() {
			started, err := r.Await()
			for err == nil && !started {
				started, err = r.Await()
			}
			f, err := r.Next()
			if err != nil || b.Decode(f.Body) != nil || len(b.Records) != 10 {
				t.Error("the frame is not read")
			}
			out = out[:0]
			for i := range b.Records {
				out = AppendDegrees(out, b.Records[i].Latitude)
				out = b.Records[i].IO.AppendJSON(out)
				out = b.Records[i].IO.AppendWidths(out)
			}
			out = AppendAck(out, len(b.Records))
		}
		// AllocsPerRun rounds down: a buffer renewed now and then must not hide in the fraction
		step := func() {
			for range 50 {
				one()
			}
		}
		step()
		require.Zero(t, testing.AllocsPerRun(20, step), "codec %v", b.Codec)
	}
}

func TestAHostileFrameAllocatesLittle(t *testing.T) {
	// The most records that fit, and the most elements: neither may cost more than a small multiple
	// of the frame.
	empty := bodyWith(Codec8, make([]Record, 255)...)
	var b Batch
	require.NoError(t, b.Decode(empty))
	require.LessOrEqual(t, cap(b.Records)*80, 4*len(empty))

	list := make([]Element, 2700)
	for i := range list {
		list[i] = Element{ID: uint16(i), Size: 1}
	}
	full := bodyWith(Codec8E, Record{IO: NewElements(list...)})
	b = Batch{}
	require.NoError(t, b.Decode(full))
	require.Equal(t, 1, cap(b.Records))
}
