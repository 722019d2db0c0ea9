package registry

import (
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/lease"
)

func TestAnAnswerOfAnotherShapeIsAnError(t *testing.T) {
	t.Parallel()
	whole := []any{"OK", int64(4), int64(5), int64(7), "123", int64(2), []any{"imei", "r2"}, int64(9)}
	got, err := parseReply(whole)
	require.NoError(t, err)
	require.Equal(t, reply{found: 4, last: 5, size: 7, lost: "123", count: 2, foreign: map[string]string{"imei": "r2"}, ms: 9}, got)
	for i := range whole[1:] {
		_, err := parseReply(slices.Delete(slices.Clone(whole), 1+i, 2+i))
		require.ErrorContains(t, err, "unexpected answer")
		other := slices.Clone(whole)
		other[1+i] = nil
		_, err = parseReply(other)
		require.ErrorContains(t, err, "unexpected answer")
	}
}

// A call that Redis did not carry out fails, and is recognised as failed.
func TestEachCallThatFailsIsAnErrorAndCounted(t *testing.T) {
	t.Parallel()
	owners(t, func(o *owner) {
		h := &holding{id: "imei"}
		gone := redis.NewClient(lease.Options(o.w.Options))
		require.NoError(o, gone.Close())
		o.cfg.Client, o.cfg.Control = gone, gone
		for op, call := range map[string]func() error{
			"register":  func() error { return o.Registry.run(o.Context(), registerScript, "register", []op{{h: h}}) },
			"release":   func() error { return o.Registry.run(o.Context(), releaseScript, "release", []op{{h: h}}) },
			"check":     func() error { return o.check(o.Context(), []op{{h: h}}) },
			"heartbeat": func() error { return o.beat(o.Context()) },
			"lookup": func() error {
				got, err := o.Lookup(o.Context(), "imei")
				require.ErrorContains(o, err, `registry: look up: `)
				require.Zero(o, got)
				return err
			},
		} {
			require.ErrorIs(o, call(), redis.ErrClosed, op)
			require.InDelta(o, 1, testutil.ToFloat64(o.metrics.failures.WithLabelValues(op)), 0, op)
			require.Equal(o, op != "lookup", o.failing[op] != nil, op)
		}
		_, err := o.message(o.Context(), "r2", "")
		require.ErrorIs(o, err, redis.ErrClosed)
		require.ErrorIs(o, o.compareAll(o.Context(), 1), redis.ErrClosed)
		require.ErrorIs(o, o.drawBoot(o.Context()), redis.ErrClosed)
	})
}

func TestWhatCannotBeHandedBackIsAnErrorAndNotWaitedFor(t *testing.T) {
	t.Parallel()
	owners(t, func(o *owner) {
		require.NoError(o, o.handedBack(o.Context(), 0), "there is nothing")
		defer o.Register("imei", Socket{Close: o.c.Close}).Release() // never written
		refused := errors.New("refused by the test")
		o.failing["release"] = refused
		require.ErrorIs(o, o.handedBack(o.Context(), 0), refused)
	})
}
