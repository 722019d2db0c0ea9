package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func decodeLines(t *testing.T, text string) (records []inspect.Record) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var r inspect.Record
		if err := d.Decode(&r); err == io.EOF {
			return records
		} else {
			require.NoError(t, err)
		}
		records = append(records, r)
	}
}

// record adds one to the log.
func (w *world) record(id, owner string, imeis ...string) {
	text, err := json.Marshal(imeis)
	require.NoError(w.t, err)
	w.redis("XADD", w.keys.Log(), id, "at", "1893596645000", "leader", "two", "owner", owner, "sweep", "owners",
		"count", len(imeis), "reowned", 0, "imeis", text)
}

func TestTheLogIsReadOverManyPagesAndFollowed(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		for n := range 250 {
			w.record("7-"+strconv.Itoa(n+1), "dead", strconv.Itoa(n))
		}
		_, stdout, stderr := w.run("log", "--json", "--limit", "0")
		records := decodeLines(t, stdout)
		require.Len(t, records, 250, stderr)
		require.Equal(t, "7-1", records[0].ID)
		require.Equal(t, []string{"249"}, records[249].Items)
		_, stdout, _ = w.run("log", "--json")
		require.Len(t, decodeLines(t, stdout), 100, "the newest, if nothing else is asked for")
		require.Len(t, ask[inspect.Why](w, "why", "3").Records, 1)

		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		out, in := io.Pipe()
		ended := make(chan int, 1)
		go func() {
			code := rollcall().Execute(ctx,
				[]string{"log", "--follow", "--json", "--limit=1", "--prefix", w.keys.Prefix},
				w.environ, in, io.Discard)
			_ = in.Close()
			ended <- code
		}()
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		require.Contains(t, lines.Text(), `"7-250"`)
		w.record("8-1", "late", "x")
		require.True(t, lines.Scan())
		require.Contains(t, lines.Text(), `"8-1"`)
		stop()
		require.False(t, lines.Scan())
		require.Equal(t, cli.ExitOK, <-ended)
	})
}

func TestRecordsAreATable(t *testing.T) {
	t.Parallel()
	var table bytes.Buffer
	require.NoError(t, showRecords(&table, []inspect.Record{
		{ID: "7-0", At: now, Epoch: 7, Leader: "ingest-2", Term: "ingest-2/abc"},
		{ID: "7-1", At: now, Epoch: 7, Leader: "ingest-2", Owner: "ingest-7", Sweep: "owners",
			Count: 44, Reowned: 1},
		{ID: "7-2", Epoch: 7, Leader: "ingest-2", Sweep: "rooms", Count: 2},
	}, true))
	golden(t, "log.txt", table.String())
}
