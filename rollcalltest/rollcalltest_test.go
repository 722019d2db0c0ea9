package rollcalltest_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/rollcalltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// where is the instance of an id; "" if nobody holds it.
func where(t *testing.T, d rollcall.Directory, id string) string {
	owner, err := d.Lookup(t.Context(), id)
	if err != nil {
		require.ErrorIs(t, err, rollcall.ErrNotFound)
	}
	return owner.Instance
}

func TestTheEntriesOfADeadReplicaGoAndComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := rollcalltest.New(t)
		a, b := fleet.Start("a", rollcall.Config{}), fleet.Start("b", rollcall.Config{})
		require.NoError(t, b.Register("bob", rollcalltest.NoSocket).Wait(t.Context()))
		time.Sleep(5 * time.Minute) // Redis has been heard
		require.NoError(t, a.Register("alice", rollcalltest.NoSocket).Wait(t.Context()))
		require.Equal(t, "a", where(t, b, "alice"))
		a.Cut()
		time.Sleep(2 * time.Minute)
		require.Empty(t, where(t, b, "alice"))
		a.Mend()
		time.Sleep(31 * time.Second)
		require.Equal(t, "a", where(t, b, "alice"))
		require.Equal(t, "b", where(t, a, "bob"))
		require.NoError(t, a.Stop())
	})
}

func TestAfterALossEverythingIsBackAndCallsReportItOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := rollcalltest.New(t)
		calls, running := make(chan struct{}, 100), atomic.Int32{}
		a := fleet.Start("a", rollcall.Config{Partitions: 2, Prefix: "{x}:", OnReconciled: func() {
			require.EqualValues(t, 1, running.Add(1))
			time.Sleep(time.Minute)
			running.Add(-1)
			calls <- struct{}{}
		}})
		for _, id := range []string{"alice", "bob", "carol", "dave"} {
			require.NoError(t, a.Register(id, rollcalltest.NoSocket).Wait(t.Context()))
		}
		time.Sleep(5 * time.Minute)
		for len(calls) > 0 {
			<-calls
		}
		fleet.FlushAll()
		time.Sleep(5 * time.Minute)
		require.NotEmpty(t, calls)
		for _, id := range []string{"alice", "bob", "carol", "dave"} {
			require.Equal(t, "a", where(t, a, id))
		}
		fleet.FlushAll()
		time.Sleep(45 * time.Second)
		require.EqualValues(t, 1, running.Load())
		begun := time.Now()
		require.NoError(t, a.Stop())
		require.Less(t, time.Since(begun), 5*time.Second, "the drain time, and no call")
		time.Sleep(time.Minute)
	})
}

func TestOfTwoSocketsTheNewestStaysWhateverHappens(t *testing.T) {
	for name, happens := range map[string]func(f *rollcalltest.Fleet){
		"nothing":              func(*rollcalltest.Fleet) {},
		"FLUSHALL":             (*rollcalltest.Fleet).FlushAll,
		"the clock steps back": func(f *rollcalltest.Fleet) { f.StepClock(-time.Hour) },
	} {
		synctest.Test(t, func(t *testing.T) {
			fleet := rollcalltest.New(t)
			a, b := fleet.Start("a", rollcall.Config{}), fleet.Start("b", rollcall.Config{})
			closed := make(chan struct{})
			older := a.Register("alice", rollcall.Socket{Close: func() error { close(closed); return nil }})
			require.NoError(t, older.Wait(t.Context()))
			time.Sleep(time.Minute)
			newer := b.Register("alice", rollcalltest.NoSocket)
			require.NoError(t, newer.Wait(t.Context()))
			<-closed
			require.Equal(t, rollcall.MovedError{To: "b"}, older.Err())
			happens(fleet)
			for range 10 {
				time.Sleep(31 * time.Second)
				require.Equal(t, "b", where(t, a, "alice"), name)
			}
			require.NoError(t, newer.Err())
		})
	}
}

// A client that waits for a connection takes a timer that another bubble may have left.
func TestBubblesOfManyPartitionsFollowEachOther(t *testing.T) {
	for _, parts := range []int{1, 8, 8} {
		synctest.Test(t, func(t *testing.T) {
			fleet := rollcalltest.New(t)
			a := fleet.Start("a", rollcall.Config{Partitions: parts, Prefix: "{x}:"})
			b := fleet.Start("b", rollcall.Config{Partitions: parts, Prefix: "{x}:"})
			var waiting conc.WaitGroup
			for i := range 100 {
				waiting.Go(func() {
					id := strconv.Itoa(i)
					require.NoError(t, a.Register(id, rollcalltest.NoSocket).Wait(t.Context()))
					require.Equal(t, "a", where(t, b, id))
				})
			}
			waiting.Wait()
			a.Cut()
			time.Sleep(5 * time.Minute)
			require.Empty(t, where(t, b, "7"))
		})
	}
}

func TestAMapIsADirectory(t *testing.T) {
	t.Parallel()
	var d rollcall.Directory = rollcalltest.Map{
		"alice": {Instance: "a", Live: true}, "bob": {Instance: "b"}, "carol": {Instance: "a", Live: true},
	}
	require.Equal(t, "a", where(t, d, "alice"))
	require.Empty(t, where(t, d, "dave"))
	found, err := d.LookupMany(t.Context(), []string{"bob", "dave"})
	require.NoError(t, err)
	require.Equal(t, map[string]rollcall.Owner{"bob": {Instance: "b"}}, found)
	owners, err := d.Owners(t.Context())
	require.NoError(t, err)
	require.Len(t, owners, 2)
	var held []string
	for id, err := range d.Holdings(t.Context(), "a") {
		require.NoError(t, err)
		held = append(held, id)
	}
	require.Equal(t, []string{"alice", "carol"}, held)
}
