package teltonika

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// twoRecords is a small codec 8 body for tests that break it.
func twoRecords() []byte {
	io := NewElements(Element{ID: 21, Size: 1, Value: 3}, Element{ID: 66, Size: 2, Value: 24079}, Element{ID: 16, Size: 4, Value: 9})
	return bodyWith(Codec8, Record{Timestamp: 1, IO: io}, Record{Timestamp: 2, IO: io})
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	good := twoRecords()
	last := len(good) - 1
	for _, c := range []struct {
		sentence string
		body     []byte
		want     error
	}{
		{"nothing", nil, ErrMalformed},
		{"a codec alone", []byte{8}, ErrMalformed},
		{"a codec and one count", []byte{8, 0}, ErrMalformed},
		{"codec 12, which carries no records", []byte{12, 0, 0}, ErrUnknownCodec},
		{"counts that differ", slices.Concat(good[:last], []byte{3}), ErrCount},
		{"one record fewer than announced", slices.Concat([]byte{8, 3}, good[2:last], []byte{3}), ErrMalformed},
		{"one record more than announced", slices.Concat([]byte{8, 1}, good[2:last], []byte{1}), ErrMalformed},
		{"a byte left over", slices.Concat(good[:last], []byte{7, 2}), ErrMalformed},
		{"zero records and something behind", []byte{8, 0, 1, 0}, ErrMalformed},
		{"a total that is not the sum", replaced(good, 27, 4), ErrMalformed},
		{"a group that reaches beyond the body", replaced(good, 28, 255), ErrMalformed},
		{"255 records of no bytes", []byte{8, 255, 255}, ErrMalformed},
	} {
		requireDecodeError(t, c.body, c.want, c.sentence)
	}
}

func replaced(b []byte, at int, by byte) []byte {
	b = slices.Clone(b)
	b[at] = by
	return b
}

func TestEveryTruncationOfABodyIsRefused(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, c := range []Codec{Codec8, Codec8E, Codec16} {
		body := bodyWith(c, randomRecords(rnd, c, 3)...)
		for n := range len(body) {
			// The last byte repeats the count: otherwise the records would not matter.
			cut := append(slices.Clone(body[:n]), 3)
			if n == len(body)-1 {
				continue
			}
			var b Batch
			require.Error(t, b.Decode(cut), "codec %v, %d of %d bytes", c, n, len(body))
		}
	}
}

func TestABatchForgetsTheFrameBefore(t *testing.T) {
	t.Parallel()
	var b Batch
	require.NoError(t, b.Decode(twoRecords()))
	require.Len(t, b.Records, 2)
	require.Error(t, b.Decode([]byte{8, 1, 1}))
	require.Empty(t, b.Records)
	require.Equal(t, Codec8, b.Codec)
	require.Error(t, b.Decode(nil))
	require.Zero(t, b.Codec)
	require.NoError(t, b.Decode([]byte{0x8E, 0, 0}))
	require.Empty(t, b.Records)
}

func TestTheGroupOf16ByteValuesThatNothingAnnouncesIsRead(t *testing.T) {
	t.Parallel()
	vin := []byte("0123456789abcdef")
	with := NewElements(Element{ID: 7, Size: 1, Value: 1}, Element{ID: 9, Size: 8, Value: 5}, Element{ID: 200, Size: 16, Bytes: vin})
	plain := NewElements(Element{ID: 7, Size: 1, Value: 2})
	// The group is there, empty, in the records without a value.
	records := []Record{{Timestamp: 1, IO: plain}, {Timestamp: 2, IO: with}, {Timestamp: 3, IO: plain}}
	for _, codec := range []Codec{Codec8, Codec8E, Codec16} {
		body := bodyWith(codec, records...)
		var b Batch
		require.NoError(t, b.Decode(body))
		requireSameRecords(t, records, b.Records)
		require.Equal(t, body, bodyWith(codec, b.Records...))
	}
	// The group is there and empty in every record.
	body := twoRecords()
	record := (len(body) - 3) / 2
	wide := slices.Concat(body[:2+record], []byte{0}, body[2+record:len(body)-1], []byte{0, 2})
	var b Batch
	require.NoError(t, b.Decode(wide))
	require.Len(t, b.Records, 2)
	require.Equal(t, `{"21":3,"66":24079,"16":9}`, string(b.Records[1].IO.AppendJSON(nil)))
	require.Equal(t, wide, bodyWith(Codec8, b.Records...))
}

func TestAViewUsedTooLongStopsAndDoesNotPanic(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		body := bodyWith(Codec8E, randomRecords(rnd, Codec8E, 2)...)
		var b Batch
		require.NoError(t, b.Decode(body))
		for i := range body { // the next frame has overwritten the buffer
			body[i] = byte(rnd.Uint32())
		}
		for _, r := range b.Records {
			_ = r.IO.AppendJSON(nil)
		}
	}
}
