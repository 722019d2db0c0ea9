package teltonika

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// typicalFrame returns a frame of n records as a moving tracker sends them: about 65 bytes per
// record in codec 8, 120 in 8E.
func typicalFrame(t testing.TB, c Codec, n int) []byte {
	rnd := rand.New(rand.NewPCG(5, 5))
	list := []Element{
		{ID: 239, Size: 1, Value: 1}, {ID: 240, Size: 1, Value: 1}, {ID: 21, Size: 1, Value: 4}, {ID: 200, Size: 1}, {ID: 69, Size: 1, Value: 1},
		{ID: 181, Size: 2, Value: 9}, {ID: 182, Size: 2, Value: 6}, {ID: 66, Size: 2, Value: 13950}, {ID: 24, Size: 2, Value: 61},
		{ID: 241, Size: 4, Value: 24602}, {ID: 16, Size: 4, Value: 1234567},
	}
	if c == Codec8E {
		for id := range uint16(8) {
			list = append(list, Element{ID: 10800 + id, Size: 2, Value: 0x0BB8})
		}
		list = append(list, Element{ID: 387, Size: SizeNX, Bytes: []byte("+54.6872+025.2797/")})
	}
	io, err := NewElements(list...)
	require.NoError(t, err)
	records := make([]Record, n)
	for i := range records {
		records[i] = Record{
			Timestamp: 1700000000000 + uint64(i)*10_000, Longitude: 252797000 + rnd.Int32N(1e5), Latitude: 546872000 + rnd.Int32N(1e5),
			Altitude: 112, Angle: 90, Satellites: 12, Speed: 61, IO: io,
		}
	}
	frame, err := AppendFrame(nil, c, records...)
	require.NoError(t, err)
	return frame
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
	for _, c := range []Codec{Codec8, Codec8E, Codec16} {
		frame := typicalFrame(t, c, 10)
		r := NewReader(&endless{frame: append([]byte{keepAlive}, frame...)}, 0)
		var b Batch
		out := make([]byte, 0, 4096)
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
		require.Zero(t, testing.AllocsPerRun(20, step), "codec %v", c)
	}
}

func TestAFrameWith16ByteValuesAllocatesNothingThoughItIsTriedTwice(t *testing.T) {
	io, err := NewElements(Element{ID: 1, Size: 16, Bytes: make([]byte, 16)})
	require.NoError(t, err)
	body, err := AppendBody(nil, Codec8, Record{IO: io}, Record{IO: io})
	require.NoError(t, err)
	var b Batch
	require.NoError(t, b.Decode(body))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = b.Decode(body) }))
}

func TestAHostileFrameAllocatesLittle(t *testing.T) {
	// The most records that fit, and the most elements: neither may cost more than a small multiple
	// of the frame.
	empty, err := AppendBody(nil, Codec8, make([]Record, 255)...)
	require.NoError(t, err)
	var b Batch
	require.NoError(t, b.Decode(empty))
	require.LessOrEqual(t, cap(b.Records)*80, 4*len(empty))

	list := make([]Element, 2700)
	for i := range list {
		list[i] = Element{ID: uint16(i), Size: 1}
	}
	io, err := NewElements(list...)
	require.NoError(t, err)
	full, err := AppendBody(nil, Codec8E, Record{IO: io})
	require.NoError(t, err)
	b = Batch{}
	require.NoError(t, b.Decode(full))
	require.Equal(t, 1, cap(b.Records))
}
