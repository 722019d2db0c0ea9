package teltonika

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecode checks Decode's contract on any body: an accepted body encodes to the same bytes, so
// nothing was misread, overlooked or invented; a refused one leaves nothing.
func FuzzDecode(f *testing.F) {
	for _, v := range loadVectors(f) {
		if b := v.bytes(f); v.Expect.Transport != "" && len(b) > header+imeiDigits+minBody {
			f.Add(v.body(f))
		}
	}
	for _, c := range []Codec{Codec8, Codec8E, Codec16} {
		frame := manyRecords(c, 3)
		f.Add(frame[header : len(frame)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var b Batch
		if err := b.Decode(body); err != nil {
			require.True(t, errors.Is(err, ErrMalformed) || errors.Is(err, ErrCount) || errors.Is(err, ErrUnknownCodec), "%v", err)
			require.Empty(t, b.Records)
			require.LessOrEqual(t, cap(b.Records), len(body)/fixedPart*2+8)
			return
		}
		require.Len(t, b.Records, int(body[1]))
		require.Equal(t, body, bodyWith(b.Codec, b.Records...))
		for _, r := range b.Records {
			n := 0
			ids, widths := map[uint16]bool{}, map[string][]uint16{}
			for e := range r.IO.All() {
				n++
				if width := strconv.Itoa(int(e.Size)); !ids[e.ID] && e.Size > 0 && e.Size <= 8 {
					widths[width] = append(widths[width], e.ID)
				}
				ids[e.ID] = true
			}
			require.Equal(t, r.IO.Len(), n)
			object := r.IO.AppendJSON(nil)
			require.True(t, json.Valid(object), "%s", object)
			require.Equal(t, len(ids), countMembers(t, object))
			var got map[string][]uint16
			require.NoError(t, json.Unmarshal(r.IO.AppendWidths(nil), &got))
			require.Equal(t, widths, got)
		}
	})
}

// FuzzSession reads any stream twice, whole and in pieces, and requires the same IMEI, the same
// frames and the same end. Each must equal what encodes to it, and the buffer must stay within the
// cap.
func FuzzSession(f *testing.F) {
	for _, v := range loadVectors(f) {
		f.Add(v.bytes(f), uint8(7), false)
		f.Add(append(append([]byte{keepAlive}, v.bytes(f)...), v.bytes(f)...), uint8(1), true)
	}
	f.Add([]byte("\xff\xff\x00\x0f356307042441013\x00"), uint8(1), true)
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8, greets bool) {
		const most = keptBuffer + 4096 // so that buffers shrink again
		whole := NewReader(bytes.NewReader(stream), most)
		parts := NewReader(&pieces{stream, int(piece)%64 + 1}, most)
		if greets {
			imei, err := whole.IMEI()
			again, errAgain := parts.IMEI()
			require.Equal(t, imei, again)
			if err != nil {
				require.EqualError(t, errAgain, err.Error())
				require.Empty(t, imei)
				return
			}
			_ = LuhnValid(imei)
			sent, err := AppendIMEI(nil, imei)
			require.NoError(t, err)
			require.True(t, bytes.HasPrefix(bytes.TrimLeft(stream, "\xff"), sent))
		}
		for {
			a, errA := whole.Next()
			b, errB := parts.Next()
			require.Equal(t, a.Raw, b.Raw)
			require.LessOrEqual(t, max(len(whole.buf), len(parts.buf)), most+overhead)
			if errA != nil || errB != nil {
				require.EqualError(t, errB, errA.Error())
				return
			}
			require.Equal(t, AppendEnvelope(nil, a.Body), a.Raw)
			require.Equal(t, a.Body[0], byte(a.Codec))
		}
	})
}

// pieces returns at most n bytes per Read.
type pieces struct {
	rest []byte
	n    int
}

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(to, p.rest[:min(p.n, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}
