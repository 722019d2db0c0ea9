package streak_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/streak"
)

func TestARowOfFailuresIsToldWhenItBeginsAndWhenItEnds(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	s := streak.New(log, "fails", "works", "key", "k")
	for _, err := range []error{nil, errors.New("one"), errors.New("two"), nil, nil, errors.New("three")} {
		s.Note(err)
		require.Equal(t, err != nil, s.Failing())
	}
	require.Equal(t, "level=WARN msg=fails key=k error=one\nlevel=INFO msg=works key=k\nlevel=WARN msg=fails key=k error=three\n", out.String())

	out.Reset()
	told := streak.New(log, "fails", "works")
	told.Begun()
	told.Note(errors.New("four"))
	require.Empty(t, out.String(), "the caller has told it")
	told.Note(nil)
	require.Equal(t, "level=INFO msg=works\n", out.String())
}
