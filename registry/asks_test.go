package registry

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOthersAreAskedOnceAnIntervalForAsLongAsADisputeLasts(t *testing.T) {
	t.Parallel()
	d := newTimed()
	c := d.stands(t, "imei")
	d.namesR2(t, c)
	for range 3 {
		require.Equal(t, map[string][]*Claim{"r2": {c}}, d.takeAsks())
		for range 9 {
			d.now = d.now.Add(d.interval / 10)
			d.retry(d.now)
			_, ops := d.batch(t)
			d.entry(ops, "r2", nil)
			require.Empty(t, d.takeAsks())
		}
		d.now = d.now.Add(d.interval / 10)
		d.retry(d.now)
		_, ops := d.batch(t)
		d.entry(ops, "r2", nil)
	}
}
