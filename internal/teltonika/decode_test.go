package teltonika

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// twoRecords is a small codec 8 body for tests that break it.
func twoRecords(t testing.TB) []byte {
	io, err := NewElements(Element{ID: 21, Size: 1, Value: 3}, Element{ID: 66, Size: 2, Value: 24079}, Element{ID: 16, Size: 4, Value: 9})
	require.NoError(t, err)
	body, err := AppendBody(nil, Codec8, Record{Timestamp: 1, IO: io}, Record{Timestamp: 2, IO: io})
	require.NoError(t, err)
	return body
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	good := twoRecords(t)
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
		t.Run(c.sentence, func(t *testing.T) {
			t.Parallel()
			requireDecodeError(t, c.body, c.want)
		})
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
		body, err := AppendBody(nil, c, randomRecords(t, rnd, c, 3)...)
		require.NoError(t, err)
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
	require.NoError(t, b.Decode(twoRecords(t)))
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
	with, err := NewElements(Element{ID: 7, Size: 1, Value: 1}, Element{ID: 9, Size: 8, Value: 5}, Element{ID: 200, Size: 16, Bytes: vin})
	require.NoError(t, err)
	plain, err := NewElements(Element{ID: 7, Size: 1, Value: 2})
	require.NoError(t, err)
	// The group is there, empty, in the records without a value.
	records := []Record{{Timestamp: 1, IO: plain}, {Timestamp: 2, IO: with}, {Timestamp: 3, IO: plain}}
	for _, codec := range []Codec{Codec8, Codec8E, Codec16} {
		body, err := AppendBody(nil, codec, records...)
		require.NoError(t, err)
		var b Batch
		require.NoError(t, b.Decode(body))
		requireSameRecords(t, records, b.Records)
		again, err := AppendBody(nil, codec, b.Records...)
		require.NoError(t, err)
		require.Equal(t, body, again)
	}
	t.Run("the group is there and empty in every record", func(t *testing.T) {
		t.Parallel()
		body := twoRecords(t)
		record := (len(body) - 3) / 2
		var wide []byte
		wide = append(wide, body[:2+record]...)
		wide = append(wide, 0)
		wide = append(wide, body[2+record:len(body)-1]...)
		wide = append(wide, 0, 2)
		var b Batch
		require.NoError(t, b.Decode(wide))
		require.Len(t, b.Records, 2)
		require.Equal(t, `{"21":3,"66":24079,"16":9}`, string(b.Records[1].IO.AppendJSON(nil)))
		again, err := AppendBody(nil, Codec8, b.Records...)
		require.NoError(t, err)
		require.Equal(t, wide, again)
	})
}

func TestAViewUsedTooLongStopsAndDoesNotPanic(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		body, err := AppendBody(nil, Codec8E, randomRecords(t, rnd, Codec8E, 2)...)
		require.NoError(t, err)
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

func TestEncodingRefusesWhatACodecCannotCarry(t *testing.T) {
	t.Parallel()
	elements := func(list ...Element) Elements {
		io, err := NewElements(list...)
		require.NoError(t, err)
		return io
	}
	many := elements(slices.Repeat([]Element{{ID: 1, Size: 1}}, 256)...)
	for _, c := range []struct {
		sentence string
		codec    Codec
		record   Record
		want     error
	}{
		{"codec 8 has ids of one byte", Codec8, Record{IO: elements(Element{ID: 256, Size: 1})}, ErrEncode},
		{"codec 8 has events of one byte", Codec8, Record{Event: 256}, ErrEncode},
		{"codec 8 has no values of variable length", Codec8, Record{IO: elements(Element{ID: 1, Size: SizeNX})}, ErrEncode},
		{"codec 16 has no values of variable length", Codec16, Record{IO: elements(Element{ID: 1, Size: SizeNX})}, ErrEncode},
		{"codec 8 has no generation type", Codec8, Record{Generation: 1}, ErrEncode},
		{"codec 8E has no generation type", Codec8E, Record{Generation: 1}, ErrEncode},
		{"codec 8 counts elements in one byte", Codec8, Record{IO: many}, ErrEncode},
		{"codec 16 counts elements in one byte", Codec16, Record{IO: many}, ErrEncode},
		{"codec 8E counts them in two", Codec8E, Record{IO: many}, nil},
		{"codec 16 has ids of two bytes", Codec16, Record{Event: 999, Generation: 5, IO: elements(Element{ID: 999, Size: 8})}, nil},
		{"codec 12 carries no records", Codec12, Record{}, ErrUnknownCodec},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			t.Parallel()
			out, err := AppendFrame([]byte("kept"), c.codec, c.record)
			require.ErrorIs(t, err, c.want)
			if c.want != nil {
				require.Equal(t, "kept", string(out))
			}
		})
	}
	_, err := AppendFrame(nil, Codec8, make([]Record, 256)...)
	require.ErrorIs(t, err, ErrEncode)
}

func TestElementsThatCannotExistAreRefused(t *testing.T) {
	t.Parallel()
	for sentence, e := range map[string]Element{
		"no size of three bytes":              {Size: 3},
		"no value larger than its size":       {Size: 2, Value: 1 << 16},
		"no 16 bytes that are 15":             {Size: 16, Bytes: make([]byte, 15)},
		"no variable length above two bytes":  {Size: SizeNX, Bytes: make([]byte, 1<<16)},
		"no size of 255 bytes, not even that": {Size: 255},
	} {
		_, err := NewElements(e)
		require.ErrorIs(t, err, ErrEncode, sentence)
	}
	_, err := NewElements(make([]Element, 1<<16)...)
	require.ErrorIs(t, err, ErrEncode)
	full, err := NewElements(slices.Repeat([]Element{{Size: 1}}, 1<<16-1)...)
	require.NoError(t, err)
	require.Equal(t, 1<<16-1, full.Len())
	require.Zero(t, Elements{}.Len())
	require.Empty(t, slices.Collect(Elements{}.All()))
}
