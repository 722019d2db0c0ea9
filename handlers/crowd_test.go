package handlers_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/handlers"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

type crowd struct {
	registry.Status
	owners int
	asked  atomic.Int64
}

func (c *crowd) Timing() guard.Timing { return guard.Timing{} }

func (c *crowd) Owners(ctx context.Context) ([]registry.Owner, error) {
	c.asked.Add(1)
	all := make([]registry.Owner, c.owners)
	for i := range all {
		all[i].Instance = fmt.Sprint("pod-", i)
	}
	return all, ctx.Err()
}

type crowded struct{ *crowd }

func (c crowded) Status() registry.Status { return c.crowd.Status }

type idle struct{}

func (idle) Status() janitor.Status { return janitor.Status{Leader: "pod\u202e1"} }

func TestManyViewersCostOneReadingAndManyInstancesABoundedPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := crowded{&crowd{owners: 5000}}
		page := handlers.Page(c, idle{})
		var viewers sync.WaitGroup
		for range 20 {
			viewers.Go(func() {
				code, text := get(page)
				assert.Equal(t, http.StatusOK, code)
				assert.Less(t, len(text), 100_000)
				assert.Contains(t, text, "and 4000 more")
			})
		}
		viewers.Wait()
		require.EqualValues(t, 1, c.asked.Load())
		time.Sleep(time.Second)
		get(page)
		require.EqualValues(t, 2, c.asked.Load())
	})
}

func TestStatusHasNothingThatChangesADisplay(t *testing.T) {
	t.Parallel()
	_, text := get(handlers.Status(crowded{&crowd{}}, idle{}))
	require.Contains(t, text, `pod\u202e1`)
}
