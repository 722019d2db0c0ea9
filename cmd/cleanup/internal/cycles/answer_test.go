package cycles

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
)

func TestTheAnswerToASweepHasWhatWillGo(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	later := at.Add(time.Minute)
	require.Equal(t, map[string]any{
		"condemned": 9, "waiting": 5, "waitingUntil": &at, "leftOverCap": 2, "rules": []Asked{
			{Rule: "carts", Outcome: janitor.Done, Condemned: 4, Waiting: 4, WaitingUntil: &later},
			{Rule: "rooms", Outcome: janitor.Done, Condemned: 5, Removed: 2, Waiting: 1, WaitingUntil: &at, LeftOverCap: 2},
			{Rule: "bots", Outcome: janitor.Held, Reason: "reference_lost", Detail: "bots is gone", DryRun: true},
		},
	}, Answer([]orphan.Result{
		{Rule: "carts", Outcome: janitor.Done, Condemned: 4, Waiting: 4, Until: later},
		{Rule: "rooms", Outcome: janitor.Done, Condemned: 5, Removed: 2, Waiting: 1, Until: at.In(time.FixedZone("", 3600)), Left: 2},
		{Rule: "bots", Outcome: janitor.Held, Reason: "reference_lost", Detail: "bots is gone", DryRun: true},
	}))
	require.Nil(t, Answer(nil)["waitingUntil"])
}
