package janitor

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
		r := refusals{of: map[string]refusal{}}
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

func TestRefusalsOfMoreOwnersThanAreRememberedAreNotLogged(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	r := refusals{of: map[string]refusal{}}
	for range 2 {
		for i := range refusalsMost + 10 {
			r.note(log, strconv.Itoa(i), errors.New("no"))
		}
	}
	require.Len(t, r.of, refusalsMost)
	require.Equal(t, refusalsMost, strings.Count(out.String(), "level=WARN"))
	r.note(log, strconv.Itoa(refusalsMost), nil)
	require.NotContains(t, out.String(), "again")
}
