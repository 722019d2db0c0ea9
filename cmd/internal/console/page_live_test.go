package console

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// The server renders every part, and a page is sent those that have changed.
func TestAPageIsSentThePartsThatHaveChanged(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		s := serving(t, w.Client, guard.Layout{Prefix: w.Prefix}, "one")
		s.lives(t, "two")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/page/live?match=t", nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 16<<20)
		v := &stream{t: t, text: lines, stop: stop}
		var first, then partsNews
		v.next("parts", &first)
		require.Len(t, first.Parts, len(pageParts))
		for i, name := range pageParts {
			require.Contains(t, first.Parts[i], `id="`+name+`"`)
		}
		require.Contains(t, text(first.Parts[1]), "two")

		require.NoError(t, timeline.Add(t.Context(), w.Client, s.keys.Timeline(),
			timeline.Event{Kind: timeline.Death, Instance: "ten", By: "one"}))
		for !strings.Contains(strings.Join(then.Parts, ""), "ten fell silent") {
			then = partsNews{}
			v.next("parts", &then)
		}
		for _, part := range then.Parts {
			require.NotContains(t, part, `id="names"`, "what has not changed is not sent again")
		}
	})
}

func TestTheLeaderCountsEntriesAndRegistrationsByTheMinute(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		keys := guard.Layout{Prefix: w.Prefix}
		serving(t, w.Client, keys, "idle")
		s := serving(t, w.Client, keys, "one", func(s *stated) { s.Janitor.Leading = true })
		s.lives(t, "one")
		require.NoError(t, w.Client.HSet(t.Context(), keys.Registry(), "356307040000018", "one").Err())
		var got []timeline.Minute
		require.Eventually(t, func() bool {
			var err error
			got, err = timeline.ReadMinutes(t.Context(), w.Client, keys.Minutes(), time.Now().Add(time.Minute))
			return err == nil && len(got) > 0
		}, 30*time.Second, 10*time.Millisecond)
		require.Len(t, got, 1, "only the leader counts")
		require.Equal(t, int64(1), got[0].Entries)
		require.Equal(t, int64(-1), got[0].Registered, "since when is not known")
	})
}

func TestRegistrationsAreThoseSinceTheLastCount(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1795365278835652)
	c := counter{}
	count := func(told map[string]inspect.About, started time.Time) int64 {
		var all []inspect.Instance
		for _, id := range []string{"a", "b", "c"} {
			all = append(all, inspect.Instance{ID: id, Started: started})
		}
		n := c.registered(all, told)
		c.at = at
		return n
	}
	about := func(boot string, n uint64) inspect.About { return inspect.About{Boot: boot, Registered: n} }
	long := at.Add(-time.Hour)
	require.Equal(t, int64(-1), count(map[string]inspect.About{"a": about("1", 1000), "b": about("1", 50)}, long))
	require.Equal(t, int64(30), count(map[string]inspect.About{"a": about("1", 1020), "b": about("1", 60)}, long))
	require.Equal(t, int64(5), count(map[string]inspect.About{"a": about("1", 1025), "c": about("1", 700)}, long),
		"one that is seen late begins now, and one that is gone ends")
	require.Equal(t, int64(8), count(map[string]inspect.About{"a": about("2", 8)}, at.Add(time.Second)),
		"a new life counts from its start")
}

func TestAPartIsRenderedOnceForAllWhoWantToSeeTheSame(t *testing.T) {
	t.Parallel()
	r := &reading{}
	(&fleet{}).texts(r)
	rendered := 0
	part := func(wanted look, name string) string {
		return r.part(wanted, name, func() ([]byte, error) {
			rendered++
			return fmt.Append(nil, name, " ", wanted.Match), nil
		})
	}
	for range 3 {
		require.Equal(t, "list ", part(look{}, "list"))
		require.Equal(t, "list ten", part(look{Match: "ten"}, "list"))
		require.Equal(t, "hour ", part(look{}, "hour"))
	}
	require.Equal(t, 3, rendered)
}

func TestAViewerHasAThousandInstancesAtMostAndFewLooksAreKept(t *testing.T) {
	t.Parallel()
	v := pageView{Fleet: &inspect.Status{Now: time.Now()}, Look: look{All: true}}
	for i := range 2 * mostAll {
		v.Fleet.Instances = append(v.Fleet.Instances, inspect.Instance{ID: strconv.Itoa(i), Alive: true})
	}
	l := v.List()
	require.Len(t, l.Rows, mostAll)
	require.Contains(t, l.Shown, "1,000 of 2,000")
	r := &reading{}
	new(fleet).texts(r)
	rendered := 0
	show := func(match string) {
		for _, name := range pageParts {
			require.Equal(t, "x", r.part(look{Match: match}, name, func() ([]byte, error) { rendered++; return []byte("x"), nil }))
		}
	}
	for i := range 100 {
		show(strconv.Itoa(i))
	}
	kept := 0
	r.parts.Range(func(any, any) bool { kept++; return true })
	require.Equal(t, mostLooks*len(pageParts), kept)
	show("")
	show("")
	require.Equal(t, 101*len(pageParts), rendered, "the usual look is always shared")
}
