package registry

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestARefusalOfLongAgoIsForgottenAndOneThatLastsIsNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := slog.New(slog.NewTextHandler(&out, nil))
		var r refusals
		for range 10 {
			r.note(log, "lasts", errors.New("no"))
			r.forget(time.Minute)
			time.Sleep(time.Minute)
		}
		require.Equal(t, 1, strings.Count(out.String(), "level=WARN"))
		time.Sleep(time.Second)
		r.forget(time.Minute)
		require.Empty(t, r.of)
		r.note(log, "lasts", nil)
		require.NotContains(t, out.String(), "again", "nobody knows")
		r.note(log, "lasts", errors.New("no"))
		require.Equal(t, 2, strings.Count(out.String(), "level=WARN"))
	})
}
