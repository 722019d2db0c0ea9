package teltonika

import (
	"bytes"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

//go:embed testdata/vectors.json
var vectorFile []byte

// vector is an entry of testdata/vectors.json: a documented frame, or bad input with its required
// result.
type vector struct {
	Name   string `json:"name"`
	Hex    string `json:"hex"`
	Expect struct {
		Ack       string `json:"ack_hex"`
		Codec     Codec  `json:"codec_id"`
		CRC       string `json:"crc"`
		Length    int    `json:"data_length"`
		IMEI      string `json:"imei"`
		Messages  []vectorMessage
		Count     int `json:"record_count"`
		Records   []vectorRecord
		Transport string `json:"transport"`
	} `json:"expect"`
}

type vectorRecord struct {
	Altitude   int16       `json:"altitude"`
	Angle      uint16      `json:"angle"`
	Event      uint16      `json:"event_io"`
	Generation byte        `json:"generation_type"`
	IO         [][2]string `json:"io"`
	Total      int         `json:"io_total"`
	Latitude   int32       `json:"lat_e7"`
	Longitude  int32       `json:"lng_e7"`
	Priority   byte        `json:"priority"`
	Satellites byte        `json:"satellites"`
	Speed      uint16      `json:"speed"`
	Timestamp  uint64      `json:"timestamp_ms"`
}

type vectorMessage struct {
	IMEI      string      `json:"imei"` // with the leading 0
	Payload   string      `json:"payload_hex"`
	Timestamp uint32      `json:"timestamp_s"`
	Type      MessageType `json:"type"`
}

// bytes returns the vector's wire bytes.
func (v vector) bytes(t testing.TB) []byte {
	b, err := hex.DecodeString(v.Hex)
	require.NoError(t, err)
	return b
}

// datagramHeader precedes the body in UDP: length, packet id, a byte, AVL packet id, and the IMEI.
const datagramHeader = 2 + 2 + 1 + 1 + 2 + imeiDigits

// body returns codec id to second count, of a TCP frame or a UDP datagram.
func (v vector) body(t testing.TB) []byte {
	b := v.bytes(t)
	if v.Expect.Transport == "udp" {
		return b[datagramHeader:]
	}
	return b[header : len(b)-4]
}

func loadVectors(t testing.TB) []vector {
	var all []vector
	require.NoError(t, json.Unmarshal(vectorFile, &all))
	require.NotEmpty(t, all)
	return all
}

func loadVector(t testing.TB, name string) vector {
	all := loadVectors(t)
	i := slices.IndexFunc(all, func(v vector) bool { return v.Name == name })
	require.GreaterOrEqual(t, i, 0, "no vector %q", name)
	return all[i]
}

// chunks returns a reader that returns one piece per Read, so that a test decides where packets
// end. After them it returns io.EOF.
func chunks(pieces ...[]byte) io.Reader {
	readers := make([]io.Reader, len(pieces))
	for i, p := range pieces {
		readers[i] = bytes.NewReader(p)
	}
	return io.MultiReader(readers...)
}

// silence fails the test if it is read: an immediate refusal must not wait.
type silence struct{ t testing.TB }

func (s silence) Read([]byte) (int, error) {
	s.t.Error("read on where the answer was known")
	return 0, io.EOF
}

// bodyWith returns the body of a frame.
func bodyWith(c Codec, records ...Record) []byte {
	frame := AppendFrame(nil, c, records...)
	return frame[header : len(frame)-4]
}

// randomRecord returns a record that the codec can carry.
func randomRecord(rnd *rand.Rand, c Codec) Record {
	l := layoutOf(c)
	id := func() uint16 {
		if l.wideIDs {
			return uint16(rnd.Uint32())
		}
		return uint16(rnd.Uint32() & 0xFF)
	}
	list := make([]Element, rnd.IntN(30))
	for i := range list {
		size := groupSizes[rnd.IntN(4)]
		list[i] = Element{ID: id(), Size: byte(size), Value: rnd.Uint64() >> (64 - 8*size)}
		if l.groupNX && rnd.IntN(5) == 0 {
			value := make([]byte, rnd.IntN(40))
			for j := range value {
				value[j] = byte(rnd.Uint32())
			}
			list[i] = Element{ID: id(), Size: SizeNX, Bytes: value}
		}
	}
	r := Record{
		Timestamp: rnd.Uint64(), Priority: byte(rnd.Uint32()), Longitude: int32(rnd.Uint32()), Latitude: int32(rnd.Uint32()),
		Altitude: int16(rnd.Uint32()), Angle: uint16(rnd.Uint32()), Satellites: byte(rnd.Uint32()), Speed: uint16(rnd.Uint32()),
		Event: id(), IO: NewElements(list...),
	}
	if l.generation {
		r.Generation = byte(rnd.Uint32())
	}
	return r
}

// randomRecords returns n records that the codec can carry.
func randomRecords(rnd *rand.Rand, c Codec, n int) []Record {
	records := make([]Record, n)
	for i := range records {
		records[i] = randomRecord(rnd, c)
	}
	return records
}

// requireSameRecords compares the contents of records, not their elements' layouts.
func requireSameRecords(t testing.TB, want, got []Record) {
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, slices.Collect(want[i].IO.All()), slices.Collect(got[i].IO.All()), "elements of record %d", i)
		require.Equal(t, want[i].IO.Len(), got[i].IO.Len())
		w, g := want[i], got[i]
		w.IO, g.IO = Elements{}, Elements{}
		require.Equal(t, w, g, "record %d", i)
	}
}
