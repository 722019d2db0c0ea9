package sweeps

import (
	"errors"
	"log/slog"
	"strconv"
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

func TestRefusalsOfMoreOwnersThanAreRememberedShareOne(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	var r refusals
	for range 2 {
		for i := range refusalsMost + 10 {
			r.note(log, strconv.Itoa(i), errors.New("no"))
		}
	}
	require.Len(t, r.of, refusalsMost+1)
	require.Equal(t, refusalsMost+1, strings.Count(out.String(), "level=WARN"))
	r.note(log, strconv.Itoa(refusalsMost), nil)
	require.NotContains(t, out.String(), "again", "others are still refused")
}
