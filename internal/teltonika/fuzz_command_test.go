package teltonika

import (
	"errors"
	"math/rand/v2"
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
		f.Add(bodyOf(c, randomMessages(rand.New(rand.NewPCG(9, 9)), c, 3)...))
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
		require.Equal(t, body, bodyOf(s.Codec, messages...))
	})
}
