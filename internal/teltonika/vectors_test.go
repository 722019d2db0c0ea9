package teltonika

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// fate is a vector's required result, for a server.
type fate struct {
	sentence  string
	handshake bool  // it is read as the start of a session, else as a frame after the handshake
	err       error // from reading; nil: a whole frame or an IMEI
	decode    error // from decoding the frame's records
	messages  error // from decoding the frame's messages, if it is one of commands
	atOnce    bool  // the error comes without reading beyond the vector's bytes
}

var malformed = map[string]fate{
	"codec16_udp_as_printed": {sentence: "seven records announced before and one after: no acknowledgement", decode: ErrCount},
	"parser_readme_udp":      {sentence: "codec 4 is not ours", decode: ErrUnknownCodec},
	"parser_readme_tcp":      {sentence: "a frame shorter than declared is waited for", err: io.ErrUnexpectedEOF},
	"codec14_nack":           {sentence: "the wiki's example with a wrong CRC is not believed", err: ErrCRC, atOnce: true},
	"keepalive_ping":         {sentence: "a keep-alive alone is no frame and no error", err: io.EOF},
	"neg_len_ffffffff":       {sentence: "4 GiB - 1 is above the cap", err: ErrTooLong, atOnce: true},
	"neg_len_7fffffff":       {sentence: "2 GiB - 1 is above the cap", err: ErrTooLong, atOnce: true},
	"neg_len_0":              {sentence: "a body of no bytes is no frame", err: ErrTooShort, atOnce: true},
	"neg_len_2":              {sentence: "a body without a second count is no frame", err: ErrTooShort, atOnce: true},
	"neg_zero_records":       {sentence: "a frame of zero records is valid"},
	"neg_preamble":           {sentence: "a preamble that is not zero ends the stream", err: ErrPreamble, atOnce: true},
	"neg_crc":                {sentence: "one flipped bit of the CRC", err: ErrCRC, atOnce: true},
	"neg_crc_high":           {sentence: "the upper half of the CRC counts", err: ErrCRC, atOnce: true},
	"neg_count2":             {sentence: "counts that differ are never acknowledged", decode: ErrCount},
	"neg_amplify":            {sentence: "65,535 elements that are not there are refused", decode: ErrMalformed},
	"neg_nx_len":             {sentence: "an element longer than the frame is refused", decode: ErrMalformed},
	"neg_unknown_codec":      {sentence: "codec 0x99 with a right CRC", decode: ErrUnknownCodec},
	"neg_cmd_size_underflow": {sentence: "a message too small for its IMEI is refused, its frame is not", decode: ErrUnknownCodec, messages: ErrMalformed},
	"neg_imei_len_ffff":      {sentence: "65,535 bytes of IMEI are not waited for", handshake: true, err: ErrHandshake, atOnce: true},
	"neg_imei_len_0":         {sentence: "an IMEI of no bytes is refused at once", handshake: true, err: ErrHandshake, atOnce: true},
	"neg_imei_nondigit":      {sentence: "a backslash is no digit", handshake: true, err: ErrHandshake, atOnce: true},
	"neg_imei_14":            {sentence: "14 digits are refused at the length", handshake: true, err: ErrHandshake, atOnce: true},
	"neg_http":               {sentence: "HTTP is refused at once", handshake: true, err: ErrHandshake, atOnce: true},
	"neg_tls_hello":          {sentence: "a TLS hello is refused at once", handshake: true, err: ErrHandshake, atOnce: true},
}

func TestMalformedVectorsAreRefusedAsTheyMust(t *testing.T) {
	t.Parallel()
	for name, want := range malformed {
		t.Run(name+": "+want.sentence, func(t *testing.T) {
			t.Parallel()
			v := loadVector(t, name)
			if v.Expect.Transport == "udp" {
				requireDecodeError(t, v.body(t), want.decode)
				return
			}
			for _, src := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader} {
				in := src(bytes.NewReader(v.bytes(t)))
				if want.atOnce {
					in = io.MultiReader(in, silence{t})
				}
				r := NewReader(in, 0)
				var err error
				var f Frame
				if want.handshake {
					_, err = r.IMEI()
				} else {
					f, err = r.Next()
				}
				require.ErrorIs(t, err, want.err)
				require.LessOrEqual(t, len(r.buf), firstBuffer, "a declared length grew the buffer")
				if want.err == nil {
					requireDecodeError(t, f.Body, want.decode)
					if f.Codec.IsCommand() {
						requireMessagesError(t, f.Body, want.messages)
					}
				}
				if want.atOnce {
					_, again := r.Next()
					require.Equal(t, err, again, "an error of framing must be final")
				}
			}
		})
	}
}

func requireDecodeError(t *testing.T, body []byte, want error, why ...any) {
	t.Helper()
	var b Batch
	err := b.Decode(body)
	require.ErrorIs(t, err, want, why...)
	if want != nil {
		require.Empty(t, b.Records, why...)
	}
	require.LessOrEqual(t, cap(b.Records), 8, "memory for records that are not there")
}

func TestDocumentedVectorsDecodeAsDocumented(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, v := range loadVectors(t) {
		if _, bad := malformed[v.Name]; bad {
			continue
		}
		seen++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			if v.Expect.Transport == "" {
				requireIMEI(t, v)
				return
			}
			body := v.body(t)
			if v.Expect.Transport == "tcp" {
				require.Equal(t, v.bytes(t), AppendEnvelope(nil, body), "length and CRC")
				f, err := NewReader(bytes.NewReader(v.bytes(t)), 0).Next()
				require.NoError(t, err)
				require.Equal(t, body, f.Body)
				require.Equal(t, v.bytes(t), f.Raw)
				require.Equal(t, v.Expect.Codec, f.Codec)
				require.Equal(t, v.Expect.Count, int(f.Count))
				require.Equal(t, v.Expect.CRC, fmt.Sprintf("%04x", CRC(f.Body)))
				require.Len(t, f.Body, v.Expect.Length)
			}
			require.Equal(t, len(v.Expect.Records) == 0, v.Expect.Codec.IsCommand())
			var b Batch
			if v.Expect.Codec.IsCommand() {
				require.ErrorIs(t, b.Decode(body), ErrUnknownCodec)
				require.Empty(t, v.Expect.Ack, "a server acknowledges no command frame")
				requireMessages(t, v)
				return
			}
			requireMessagesError(t, body, ErrUnknownCodec)
			require.NoError(t, b.Decode(body))
			require.Equal(t, v.Expect.Codec, b.Codec)
			require.Equal(t, v.Expect.Records, describe(b.Records))
			if v.Expect.Transport == "tcp" {
				require.Equal(t, v.Expect.Ack, hex.EncodeToString(AppendAck(nil, len(b.Records))))
			}
			require.Equal(t, body, bodyWith(b.Codec, b.Records...), "encoded again")
		})
	}
	require.Equal(t, len(loadVectors(t)), seen+len(malformed), "a vector that no test knows")
}

func requireIMEI(t *testing.T, v vector) {
	imei, err := NewReader(bytes.NewReader(v.bytes(t)), 0).IMEI()
	require.NoError(t, err)
	require.Equal(t, v.Expect.IMEI, imei)
	sent, err := AppendIMEI(nil, imei)
	require.NoError(t, err)
	require.Equal(t, v.bytes(t), sent)
}

// requireMessages requires a documented command frame to decode and to encode again.
func requireMessages(t *testing.T, v vector) {
	s, err := DecodeMessages(v.body(t))
	require.NoError(t, err)
	require.Equal(t, v.Expect.Codec, s.Codec)
	require.Equal(t, v.Expect.Count, s.Len())
	messages := slices.Collect(s.All())
	var got []vectorMessage
	for _, m := range messages {
		d := vectorMessage{Payload: hex.EncodeToString(m.Text), Timestamp: m.Timestamp, Type: m.Type}
		if v.Expect.Codec.hasIMEI() {
			d.IMEI = "0" + m.IMEI.String()
		}
		got = append(got, d)
	}
	require.Equal(t, v.Expect.Messages, got)
	require.Equal(t, v.bytes(t), AppendMessages(nil, s.Codec, messages...), "encoded again")
}

// describe formats records like the vectors: elements as decimal id and hex value.
func describe(records []Record) []vectorRecord {
	var out []vectorRecord
	for _, r := range records {
		d := vectorRecord{
			Altitude: r.Altitude, Angle: r.Angle, Event: r.Event, Generation: r.Generation, Total: r.IO.Len(), Latitude: r.Latitude,
			Longitude: r.Longitude, Priority: r.Priority, Satellites: r.Satellites, Speed: r.Speed, Timestamp: r.Timestamp,
		}
		for e := range r.IO.All() {
			value := fmt.Sprintf("%0*x", 2*int(e.Size), e.Value)
			if e.Bytes != nil {
				value = hex.EncodeToString(e.Bytes)
			}
			d.IO = append(d.IO, [2]string{fmt.Sprint(e.ID), value})
		}
		out = append(out, d)
	}
	return out
}

func TestEveryDocumentedFrameIsReadAtEverySplit(t *testing.T) {
	t.Parallel()
	hello := loadVector(t, "imei_handshake").bytes(t)
	for _, v := range loadVectors(t) {
		if _, bad := malformed[v.Name]; bad || v.Expect.Transport != "tcp" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			// A keep-alive comes before the IMEI and between two frames, and no byte is lost wherever a
			// packet ends.
			frame := v.bytes(t)
			session := slices.Concat([]byte{0xFF}, hello, frame, []byte{0xFF, 0xFF}, frame)
			read := func(src io.Reader) {
				r := NewReader(src, 0)
				imei, err := r.IMEI()
				require.NoError(t, err)
				require.Equal(t, "356307042441013", imei)
				for range 2 {
					f, err := r.Next()
					require.NoError(t, err)
					require.Equal(t, frame, f.Raw)
				}
				_, err = r.Next()
				require.Equal(t, io.EOF, err)
			}
			for i := range len(session) + 1 {
				read(chunks(session[:i], session[i:]))
			}
			read(iotest.OneByteReader(bytes.NewReader(session)))
			read(iotest.HalfReader(bytes.NewReader(session)))
			read(iotest.DataErrReader(bytes.NewReader(session)))
		})
	}
}
