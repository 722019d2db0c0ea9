package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOneBlipWhileTheEpochIsDrawnDoesNotGiveTheLeaseAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		a.line.breaksOnce("epoch", cut)
		a.run(untilEnd)
		term := await(b, a.terms)
		require.True(t, term.Valid())
		require.Equal(t, 1, a.line.count("acquire"))
		require.Zero(t, a.line.count("release"))
		require.GreaterOrEqual(t, a.line.count("epoch"), 2)
	})
}

func TestAnElectorThatIsFencedWhileItDrawsGivesNothingBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		a.line.breaksOnce("epoch", cut)
		a.run(untilEnd)
		synctest.Wait()
		require.NoError(t, b.admin.Set(t.Context(), b.key, "other/1", time.Hour).Err())
		time.Sleep(b.ttl)
		require.Zero(t, a.line.count("release"), "there is nothing of its own")
		require.NotContains(t, a.log.all(), "lease cannot be contended for", "another was faster: no trouble")
	})
}

func TestALeaseThatCannotBeCappedIsCappedLater(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.admin.Set(t.Context(), b.key, "by hand", 0).Err())
		a := b.candidate("a")
		a.line.breaksOnce("cap", drop)
		a.run(untilEnd)
		await(b, a.terms)
		require.GreaterOrEqual(t, a.line.count("cap"), 2)
		require.Contains(t, a.log.all(), "lease cannot be contended for")
		require.Contains(t, a.log.all(), "lease can be contended for again")
	})
}

func TestAnEpochIsAboveAllThatWasAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		require.NoError(t, b.admin.Set(t.Context(), b.key, "a/1", time.Hour).Err())
		epoch, err := a.draw(t.Context(), time.Second, "a/1", 7)
		require.NoError(t, err)
		require.GreaterOrEqual(t, epoch, uint64(8))
		again, err := a.draw(t.Context(), time.Second, "a/1", epoch+1000)
		require.NoError(t, err)
		require.Greater(t, again, epoch+1000)
		_, err = a.draw(t.Context(), time.Second, "b/1", 0)
		require.ErrorIs(t, err, errNotMine)
		a.line.breaks(cut)
		_, err = a.draw(t.Context(), time.Second, "a/1", 0)
		require.ErrorContains(t, err, "lease: draw epoch")
		a.line.mend()
	})
}
