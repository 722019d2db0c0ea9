package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/process"
)

func TestAPageFitsTheTerminalAndBeginsWithWhatMatters(t *testing.T) {
	t.Parallel()
	lines, err := page(sampleStatus(), nil, 80, 100)
	require.NoError(t, err)
	golden(t, "top.txt", strings.Join(lines, "\n")+"\n")

	for _, text := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(text), 80, text)
	}

	for height := 1; height < len(lines); height++ {
		some, err := page(sampleStatus(), nil, 80, height)
		require.NoError(t, err)
		require.Len(t, some, height)
		require.Contains(t, some[height-1], "lines more: rollcall status")
		failed, err := page(sampleStatus(), errors.New("no\nroute"), 80, height+1)
		require.NoError(t, err)
		require.Len(t, failed, height+1)
		require.Equal(t, `no answer now: no\nroute`, failed[height])
	}
}

func TestTheTerminalIsDrawnOverAndLeftAsItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out process.Buffer
		var height atomic.Int64
		height.Store(8)
		s := screen{w: &out, size: func() (int, int, error) { return 20, int(height.Load()), nil }}
		ctx, stop := context.WithCancel(t.Context())
		asked := 0
		ended := make(chan error, 1)
		begun := time.Now()
		go func() {
			ended <- s.show(ctx, 10*time.Second, func(context.Context) (inspect.Status, error) {
				if asked++; asked == 3 {
					return inspect.Status{}, errors.New("away")
				}
				return sampleStatus(), nil
			})
		}()
		before := 0
		drawn := func() string {
			synctest.Wait()
			all := out.String()
			defer func() { before = len(all) }()
			return all[before:]
		}

		first := drawn()
		require.True(t, strings.HasPrefix(first, enter+home+"rollcall top,"+endOf+"\r\n"), "%q", first)
		require.Equal(t, 7, strings.Count(first, "\r\n"))
		require.True(t, strings.HasSuffix(first, rest))
		height.Store(4)
		time.Sleep(sizeEvery + time.Millisecond)
		require.Equal(t, 3, strings.Count(drawn(), "\r\n"), "at once")
		require.Less(t, time.Since(begun), time.Second)
		time.Sleep(10 * time.Second)
		require.Contains(t, drawn(), "\r\nno answer now: away"+endOf)
		time.Sleep(10 * time.Second)
		require.NotContains(t, drawn(), "no answer")
		stop()
		require.NoError(t, <-ended)
		require.True(t, strings.HasSuffix(drawn(), leave))
	})
}

func TestTopNeedsATerminalAndAnAnswer(t *testing.T) {
	t.Parallel()
	w := serverOf(t, sharedOptions(t))
	code, stdout, stderr := w.run("top")
	require.Equal(t, cli.ExitFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "stdout is not a terminal; rollcall status says the same once")
	code, _, stderr = w.run("top", "--json")
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, stderr, "rollcall status has --json")

	var out bytes.Buffer
	s := screen{w: &out, size: func() (int, int, error) { return 80, 25, nil }}
	err := s.show(t.Context(), time.Second, func(context.Context) (inspect.Status, error) {
		return inspect.Status{}, errors.New("away")
	})
	require.ErrorContains(t, err, "away")
	require.Empty(t, out.String(), "the terminal is not touched")
}
