package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry/internal/digest"
)

// scans gives the table the findings of a full scan that ran from began until now.
func (d *timed) scans(began time.Time, met ...string) {
	var of digest.Digest
	for _, imei := range met {
		of.Add(imei)
	}
	d.vouched.note(d.now, d.stand)
	d.vouched.compare(fmt.Sprint(d.now), of, began)
}

// looked returns the number of claims that the next round checks.
func (d *timed) looked(t *testing.T, round int) (n int) {
	t.Helper()
	for i := range shards {
		d.checkTenth(round*shards + i)
		for b := d.next(d.now); ; b = d.next(d.now) {
			found := make([]any, len(b.check))
			for i := range found {
				found[i] = "me"
			}
			d.checked(b.check, found, true, nil, d.now)
			d.ended(nil)
			if n += len(b.check); len(b.check) == 0 {
				break
			}
		}
	}
	return n
}

func TestAnOwnerLooksAtWhatNoFullScanVouchesFor(t *testing.T) {
	t.Parallel()
	const n = 1600 // about a hundred in each part
	imeis := make([]string, n)
	for i := range imeis {
		imeis[i] = fmt.Sprint("imei-", i)
	}
	setup := func(t *testing.T) *timed {
		d := newTimed()
		for _, imei := range imeis {
			d.stands(t, imei)
		}
		d.vouched.note(d.now, d.stand)
		d.now = d.now.Add(time.Minute)
		return d
	}
	aPart := func(got int) { t.Helper(); require.InDelta(t, n/digest.Parts, got, n/digest.Parts/2) }

	t.Run("nothing is vouched for without a scan", func(t *testing.T) {
		require.Equal(t, n, setup(t).looked(t, 1))
	})
	t.Run("a scan met all", func(t *testing.T) {
		d := setup(t)
		d.scans(d.now, imeis...)
		require.Equal(t, n, d.looked(t, 0), "its own round")
		for round := 1; round < ownRounds; round++ {
			require.Zero(t, d.looked(t, round))
		}
		require.Equal(t, n, d.looked(t, ownRounds), "whatever a leader says")
		d.vouched.forget()
		require.Equal(t, n, d.looked(t, 1), "its word has expired")
	})
	t.Run("a scan missed one", func(t *testing.T) {
		d := setup(t)
		d.scans(d.now, imeis[1:]...)
		aPart(d.looked(t, 1))
	})
	t.Run("a scan met one more", func(t *testing.T) {
		d := setup(t)
		d.scans(d.now, append([]string{"not held"}, imeis...)...)
		aPart(d.looked(t, 1))
	})
	t.Run("a device came after the scan", func(t *testing.T) {
		d := setup(t)
		began := d.now
		d.now = d.now.Add(time.Second)
		d.vouched.note(d.now, d.stand)
		d.stands(t, "new")
		d.scans(began, imeis...)
		require.Zero(t, d.looked(t, 1))
	})
	t.Run("a device went after the scan", func(t *testing.T) {
		d := setup(t)
		began := d.now
		d.release(d.holdings[imeis[0]].claim, d.now)
		_, ops := d.batch(t)
		d.answer(ops, reply{}, nil)
		d.scans(began, imeis...)
		require.Zero(t, d.looked(t, 1))
	})
	t.Run("devices came before the scan, and it missed them", func(t *testing.T) {
		d := setup(t)
		d.stands(t, "new")
		d.vouched.note(d.now, d.stand)
		d.now = d.now.Add(time.Minute)
		d.scans(d.now, imeis...)
		aPart(d.looked(t, 1))
	})
	t.Run("one came and one went while it ran", func(t *testing.T) {
		d := setup(t)
		began := d.now
		d.stands(t, "new") // found, but the other one not
		d.release(d.holdings[imeis[0]].claim, d.now)
		_, ops := d.batch(t)
		d.answer(ops, reply{}, nil)
		d.stands(t, imeis[0])
		d.scans(began, append([]string{"new"}, imeis[1:]...)...)
		aPart(d.looked(t, 1))
	})
}

func TestRememberedDigestsAreBounded(t *testing.T) {
	t.Parallel()
	var v vouched
	for i := range 3 * remembered {
		v.note(anInstant.Add(time.Duration(i)*time.Second), digest.Digest{uint64(i)})
		v.note(anInstant.Add(time.Duration(i)*time.Second), digest.Digest{uint64(i)})
	}
	require.Len(t, v.past, remembered)
	v.compare("x", digest.Digest{0, 1}, anInstant)
	require.False(t, v.agreed[0], "it is forgotten")
}
