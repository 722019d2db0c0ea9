package teltonika

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestAwaitTellsAKeepAliveFromTheBeginningOfAFrame(t *testing.T) {
	t.Parallel()
	frame := loadVector(t, "codec8_tcp_1").bytes(t)
	r := NewReader(chunks([]byte{0xFF}, []byte{0xFF, 0xFF, 0xFF}, frame[:1], frame[1:]), 0)
	for range 2 { // one for each read: the caller renews its idle deadline after each
		started, err := r.Await()
		require.NoError(t, err)
		require.False(t, started)
	}
	for range 2 { // asking again changes nothing, and does not read
		started, err := r.Await()
		require.NoError(t, err)
		require.True(t, started)
	}
	f, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, frame, f.Raw)
}

func TestOneWrongByteWhereAFrameShouldBeginIsEnough(t *testing.T) {
	t.Parallel()
	_, err := NewReader(io.MultiReader(chunks([]byte("G")), silence{t}), 0).Next()
	require.ErrorIs(t, err, ErrPreamble)
}

func TestATimeoutLosesNothing(t *testing.T) {
	t.Parallel()
	frame := loadVector(t, "codec8_tcp_1").bytes(t)
	late := iotest.ErrReader(os.ErrDeadlineExceeded)
	// Each of these readers is read once: the third Next finds the whole frame.
	src := &turns{chunks(frame[:3]), late, chunks(frame[3:20]), late, chunks(frame[20:])}
	r := NewReader(src, 0)
	for range 2 {
		_, err := r.Next()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	f, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, frame, f.Raw)
}

// turns reads once from each of its readers.
type turns []io.Reader

func (s *turns) Read(p []byte) (int, error) {
	if len(*s) == 0 {
		return 0, io.EOF
	}
	r := (*s)[0]
	*s = (*s)[1:]
	return r.Read(p)
}

func TestASourceThatGivesNothingIsLeft(t *testing.T) {
	t.Parallel()
	_, err := NewReader(readerFunc(func([]byte) (int, error) { return 0, nil }), 0).Next()
	require.Equal(t, io.ErrNoProgress, err)

	// An occasional empty read is not an error: bytes come between.
	frame := loadVector(t, "codec8_tcp_2").bytes(t)
	asked := 0
	slow := readerFunc(func(p []byte) (int, error) {
		if asked++; asked%60 != 0 {
			return 0, nil
		}
		return copy(p[:1], frame[asked/60-1:]), nil
	})
	f, err := NewReader(slow, 0).Next()
	require.NoError(t, err)
	require.Equal(t, frame, f.Raw)

	broken := errors.New("broken")
	_, err = NewReader(iotest.ErrReader(broken), 0).Next()
	require.Equal(t, broken, err)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestTheCapIsOnTheDeclaredLength(t *testing.T) {
	t.Parallel()
	atCap, above := make([]byte, DefaultMaxBody), make([]byte, DefaultMaxBody+1)
	f, err := NewReader(bytes.NewReader(AppendEnvelope(nil, atCap)), 0).Next()
	require.NoError(t, err)
	require.Equal(t, atCap, f.Body)
	_, err = NewReader(bytes.NewReader(AppendEnvelope(nil, above)), 0).Next()
	require.ErrorIs(t, err, ErrTooLong)

	small := AppendEnvelope(nil, []byte{8, 0, 0})
	_, err = NewReader(bytes.NewReader(small), 3).Next()
	require.NoError(t, err)
	_, err = NewReader(bytes.NewReader(small), 2).Next()
	require.ErrorIs(t, err, ErrTooLong)
}

func TestTheBufferGrowsWithTheBytesThatCameAndNotWithTheDeclaredLength(t *testing.T) {
	t.Parallel()
	long := AppendEnvelope(nil, make([]byte, DefaultMaxBody))
	r := NewReader(bytes.NewReader(long[:100]), 0)
	_, err := r.Next()
	require.Equal(t, io.ErrUnexpectedEOF, err)
	require.Len(t, r.buf, firstBuffer)

	r = NewReader(bytes.NewReader(long[:firstBuffer+1]), 0)
	_, err = r.Next()
	require.Equal(t, io.ErrUnexpectedEOF, err)
	require.Len(t, r.buf, 2*firstBuffer)

	r = NewReader(bytes.NewReader(long), 0)
	_, err = r.Next()
	require.NoError(t, err)
	require.Len(t, r.buf, DefaultMaxBody+overhead, "what a connection can cost at most")
	_, err = r.Next()
	require.Equal(t, io.EOF, err)
	require.Len(t, r.buf, firstBuffer, "and not for longer than the frame is in it")
}

func TestHandshakes(t *testing.T) {
	t.Parallel()
	imei := hex.EncodeToString([]byte("356307042441013"))
	for _, c := range []struct {
		sentence, in, want string
		err                error
	}{
		{"keep-alives before the IMEI are skipped", "ffffff000f" + imei, "356307042441013", nil},
		{"keep-alives in front of HTTP do not help it", "ffff4745", "", ErrHandshake},
		{"a keep-alive within the length is none", "00ff", "", ErrHandshake},
		{"a second length byte of 16 is refused before the digits", "0010", "", ErrHandshake},
		{"a sign is not a digit", "000f2b", "", ErrHandshake},
		{"a digit of another script is not a digit", "000fd9a1", "", ErrHandshake},
		{"nothing at all is the end", "", "", io.EOF},
		{"only keep-alives are the end", "ffff", "", io.EOF},
		{"an IMEI cut short is an unexpected end", "000f" + imei[:28], "", io.ErrUnexpectedEOF},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			t.Parallel()
			in, err := hex.DecodeString(c.in)
			require.NoError(t, err)
			var src io.Reader = bytes.NewReader(in)
			if errors.Is(c.err, ErrHandshake) {
				src = io.MultiReader(src, silence{t})
			}
			got, err := NewReader(src, 0).IMEI()
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestLuhn(t *testing.T) {
	t.Parallel()
	for imei, want := range map[string]bool{
		"356307042441013": true, "352093086403655": true, "490154203237518": true,
		"356307042441014": false, "123456789012345": false, "": false, "35630704244101x": false, "٣56307042441013": false,
	} {
		require.Equal(t, want, LuhnValid(imei), "%q", imei)
	}
}

func TestCodecsAreNamedAsTheVendorDoes(t *testing.T) {
	t.Parallel()
	names := map[Codec]string{
		Codec8: "8", Codec8E: "8E", Codec12: "12", Codec13: "13", Codec14: "14", Codec15: "15", Codec16: "16", 0x99: "0x99", 4: "0x04",
	}
	for c, name := range names {
		require.Equal(t, name, c.String())
		require.Equal(t, c >= 0x0C && c <= 0x0F, c.IsCommand())
	}
}
