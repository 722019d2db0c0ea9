package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

func TestAnInstanceIsLateAfterOneAndAHalfIntervals(t *testing.T) {
	t.Parallel()
	s := inspect.Status{Now: now, Instances: []inspect.Instance{
		{ID: "a", Alive: true, Interval: "30s", LastBeat: now.Add(-44 * time.Second)},
		{ID: "b", Alive: true, Interval: "30s", LastBeat: now.Add(-46 * time.Second)},
		{ID: "c", Alive: true, LastBeat: now.Add(-time.Hour)},
		{ID: "d", Interval: "30s", LastBeat: now.Add(-time.Hour)},
	}}
	var b bytes.Buffer
	require.NoError(t, showInstances(&b, s, 0))
	require.Regexp(t, `(?ms)^a +0 +yes .*^b +0 +late .*^c +0 +yes .*^d +0 +no `, b.String())
}
