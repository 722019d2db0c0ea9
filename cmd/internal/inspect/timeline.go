package inspect

import (
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// Hour is how far back a timeline goes.
const Hour = time.Hour

const mostEvents = 1000

func sentence(e timeline.Event) string {
	switch e.Kind {
	case timeline.Term:
		switch {
		case e.Count == 1:
			return e.Instance + " leads one more partition"
		case e.Count > 1:
			return fmt.Sprintf("%s leads %d more partitions", e.Instance, e.Count)
		}
		return fmt.Sprintf("%s leads, term %d", e.Instance, e.Epoch)
	case timeline.Eviction:
		if e.Instance == "" {
			return fmt.Sprintf("%d orphans taken by %s", e.Count, e.Sweep)
		}
		return fmt.Sprintf("%d evicted of %s, which had no heartbeat (%s)", e.Count, e.Instance, e.Sweep)
	case timeline.Alive:
		return e.Instance + " lives"
	case timeline.Death:
		if e.Found { // since when is unknown
			return e.Instance + " fell silent before this term"
		}
		return e.Instance + " fell silent"
	case timeline.Left:
		return e.Instance + " said goodbye"
	case timeline.Hold:
		return "nothing is deleted: " + or(holdMeaning[e.Reason], e.Reason)
	case timeline.HoldOver:
		return "the hold " + e.Reason + " is over"
	case timeline.Pause:
		until := ""
		if !e.Until.IsZero() {
			until = " until " + e.Until.UTC().Format("15:04:05Z")
		}
		return fmt.Sprintf("paused by %s (%s)%s", or(e.Who, "somebody"), or(e.Why, "no reason given"), until)
	case timeline.Resume:
		if e.Who != "" {
			return "resumed by " + e.Who
		}
		return or(e.Why, "resumed")
	case timeline.Resign:
		return fmt.Sprintf("%s resigned (%s)", e.Instance, or(e.Why, "no reason given"))
	}
	return ""
}
