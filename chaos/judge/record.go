package judge

import (
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/registry"
)

// Batch is one guarded delete as H has it: the log's record, and what was deleted in the same
// step.
type Batch struct {
	At       time.Time
	Epoch, N uint64
	Leader   string
	Owner    string // judged dead
	IMEIs    []string
}

// Term is one opening of the log.
type Term struct {
	At     time.Time
	Epoch  uint64
	Leader string
	Token  string // of the lease
}

// record is what an XADD to the log says.
type record struct {
	epoch, n uint64
	fields   map[string]string
}

// streamEntry returns the id and the fields of an XADD.
func streamEntry(c history.Command) (id string, fields map[string]string) {
	id, words := history.StreamEntry(c)
	fields = make(map[string]string)
	for i := 0; i+1 < len(words); i += 2 {
		fields[words[i]] = words[i+1]
	}
	return id, fields
}

// recordIn returns the log's record in an event, nil if there is none.
func recordIn(e *history.Event, l registry.Layout) *record {
	for _, c := range e.Commands {
		if c[0] != "XADD" || c[1] != l.Log() {
			continue
		}
		id, fields := streamEntry(c)
		epoch, n, _ := strings.Cut(id, "-")
		r := &record{fields: fields}
		r.epoch, _ = strconv.ParseUint(epoch, 10, 64)
		r.n, _ = strconv.ParseUint(n, 10, 64)
		return r
	}
	return nil
}
