package main

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

const (
	imei  = "356307042441013"
	other = "356307042441021"
)

func TestFindShowsWhatADeviceLastSentWrong(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t) // the key has no prefix
	w := newWorld(t, redistest.World{Client: server.Client(), Options: server.Options(), Prefix: "x:"})
	var found inspect.Found
	require.Equal(t, cli.ExitNo, w.answer(&found, "find", imei))
	require.Nil(t, found.Fault)
	const faults = "telemetry:teltonika:faults"
	now := time.Now()
	stored := fmt.Sprintf(`{"at":%d,"kind":"malformed","error":"teltonika: malformed body: codec 8",`+
		`"bytes":"0000","peer":"127.0.0.1:5027"}`, now.UnixMilli())
	w.redis("HSET", faults, imei, stored, other, "what is this")
	require.Equal(t, cli.ExitNo, w.answer(&found, "find", imei))
	f := found.Fault
	require.Equal(t, "malformed", f.Kind)
	require.Equal(t, "0000", f.Bytes)
	require.WithinDuration(t, now, f.At, time.Second)
	w.tells(`
		3 find $IMEI ~ ^nobody holds .*\nlast fault: malformed at .* from 127.0.0.1:
		3 find $IMEI ~ : teltonika: malformed body.*\nit sent: 0000`)
	found = inspect.Found{}
	require.Equal(t, cli.ExitNo, w.answer(&found, "find", other))
	require.Nil(t, found.Fault)
}

func TestFindAndWhyOfADeviceFromItsRegistrationToItsOwnersDeath(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		w.tells(`
			3 find $IMEI ~ ^nobody holds $IMEI$
			3 why $IMEI ~ the log is empty
			`)
		w.writes("dead", 0, other)
		w.tells(`0 why $OTHER ~ ^kept: .*But nothing is swept: No replica has a heartbeat, so nobody leads`)
		w.tells(`0 find $OTHER --json ~ "alive": false`)

		one := w.replica("one")
		until(t, "one listens and leads", func() bool {
			s := ask[inspect.Status](w, "status")
			return s.Heard && s.Leader != nil
		})
		w.holds(one, imei)
		w.tells(`
			0 find $IMEI --json ~ "owner": "one"
			0 find $IMEI --json ~ "alive": true
			0 find $IMEI --json ~ "since": "2
			0 pause upgrade --who ann
			0 why $OTHER --json ~ "verdict": "$WILLGO"
			0 why $OTHER --json ~ "reason": "paused"
			0 why $OTHER ~ will go once sweeping goes on, unless dead beats
			0 resume`, "$WILLGO", string(inspect.WillGo))

		var why inspect.Why
		until(t, "the entry of the dead is swept", func() bool {
			why = ask[inspect.Why](w, "why", other)
			require.Contains(t, []inspect.Verdict{inspect.WillGo, inspect.Evicted}, why.Verdict)
			return why.Verdict == inspect.Evicted
		})
		require.Equal(t, "dead", why.Owner)
		require.Len(t, why.Records, 1)
		require.Equal(t, "registry", why.Records[0].Sweep)
		require.Equal(t, "one", why.Records[0].Leader)
		require.NotZero(t, why.Records[0].Epoch)
		_, stdout, _ := w.run("log", "--json")
		records := decodeLines(t, stdout)
		require.NotEmpty(t, records[0].Term, "the first record begins the term")
		require.Equal(t, []string{other}, records[len(records)-1].Items)
		w.tells(`
			0 why $OTHER ~ ^evicted .* by one in term \d+: dead had no heartbeat$
			0 why $OTHER ~ ^AT +TERM +LEADER +SWEEP +OWNER +EVICTED
			0 log --sweep=registry --since 1h --limit 1 ~  dead
			`)
		for _, filter := range []string{"--owner=nobody", "--since=2100-01-01T00:00:00Z"} {
			_, stdout, _ = w.run("log", filter)
			require.NotContains(t, stdout, "dead")
		}
	})
}

func TestWhyIsASentenceAndATable(t *testing.T) {
	t.Parallel()
	answer := inspect.Why{
		ID: imei, Verdict: inspect.Evicted, Owner: "ingest-7", Sentence: "evicted 12m ago",
		Records: []inspect.Record{
			{ID: "7-2", At: now, Epoch: 7, Leader: "ingest-2",
				Owner: "ingest-7", Sweep: "owners", Count: 44, Reowned: 1},
			{ID: "5-1", At: now.Add(-time.Hour), Epoch: 5, Leader: "ingest-1",
				Owner: "ingest-3", Sweep: "registry", Count: 1},
		},
	}
	var table, json bytes.Buffer
	require.NoError(t, showWhy(&table, answer))
	require.NoError(t, writeJSON(&json, answer))
	golden(t, "why.txt", table.String())
	golden(t, "why.json", json.String())
	json.Reset()
	found := inspect.Found{ID: imei, Owner: "one", Alive: true, Since: now, LastBeat: now,
		Sentence: "one holds it"}
	require.NoError(t, writeJSON(&json, found))
	golden(t, "find.json", json.String())
}
