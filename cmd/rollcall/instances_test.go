package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

func TestAVersionOfNoReleaseIsItsCommit(t *testing.T) {
	t.Parallel()
	for version, short := range map[string]string{
		"v0.0.0-20261126053012-4b9f82ba1234":         "4b9f82ba",
		"v0.1.1-0.20261126053012-4b9f82ba1234+dirty": "4b9f82ba+",
		"v0.1.0-rc.1.0.20261126053012-4b9f82ba1234":  "4b9f82ba",
		"v0.1.0": "v0.1.0", "(devel)": "(devel)", "v0.1.0-rc.1": "v0.1.0-rc.1", "": "",
	} {
		require.Equal(t, short, shortVersion(version), version)
	}
}

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
