package handlers

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall"
)

func TestManyViewersCostOneReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		f := fleet{ask: func(ctx context.Context) ([]rollcall.Owner, error) { asked++; return nil, ctx.Err() }}
		ended, cancel := context.WithCancel(t.Context())
		cancel() // whose request it was must not matter to the others
		var viewers sync.WaitGroup
		for range 20 {
			viewers.Go(func() {
				_, err := f.owners(ended)
				require.NoError(t, err)
			})
		}
		viewers.Wait()
		require.Equal(t, 1, asked)
		time.Sleep(time.Second)
		_, err := f.owners(ended)
		require.NoError(t, err)
		require.Equal(t, 2, asked)
	})
}
