package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/internal/guard"
)

// facts are what Redis cannot tell.
type facts struct {
	layouts       []guard.Layout // of the partitions
	interval, ttl time.Duration
	killed        map[string]time.Time // replicas
	outages       []outage
	sockets       map[string][]*socket // of a device, in their order
	// lost names a server, and since when what it does is not the partition's: another leads.
	lost map[string]time.Time
}

// socket is a device's at a replica.
type socket struct {
	owner       string
	from, until time.Time // until zero: it is open
}

// recorded is what one node wrote: one of its files.
type recorded struct {
	node   string
	events history.History
}

// verdict is what the files show. Wrong is empty if all is right.
type verdict struct {
	facts
	wrong   []string
	evicted map[string]int          // by owner, each batch once
	batches map[string]bool         // by partition, id and owner
	of      map[string]guard.Layout // the partition of a log, or of a registry
}

func newVerdict(f facts) *verdict {
	v := &verdict{facts: f, evicted: map[string]int{}, batches: map[string]bool{}, of: map[string]guard.Layout{}}
	for _, l := range f.layouts {
		v.of[l.Log()], v.of[l.Registry()] = l, l
	}
	return v
}

// judge looks at every event in a file. A node that another replaced, whose writes were lost, is
// judged as strictly as one that is there. A file that begins with what was there before says of
// each batch what the log does.
func (v *verdict) judge(file recorded) {
	for _, e := range file.events {
		for _, c := range e.Commands { // those of one event are of one partition
			if layout, ok := v.of[key(c)]; ok {
				v.event(file.node, &e, layout)
				break
			}
		}
	}
}

// key is that of a command; "": it has none.
func key(c history.Command) string {
	if len(c) < 2 {
		return ""
	}
	return c[1]
}

// entries is how many were evicted.
func (v *verdict) entries() (n int) {
	for _, of := range v.evicted {
		n += of
	}
	return n
}

func (v *verdict) fault(node string, e *history.Event, format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Sprintf("%s, byte %d: ", node, e.Offset)+fmt.Sprintf(format, args...))
}

// event judges what an event does to one partition.
func (v *verdict) event(node string, e *history.Event, layout guard.Layout) {
	var gone []string // entries
	var record map[string]string
	var id, index string
	for _, c := range e.Commands {
		switch {
		case c[0] == "XADD" && c[1] == layout.Log():
			if i, fields := history.StreamEntry(c); fields["count"] != "" && fields["count"] != "0" {
				id, record = i, fields
			}
		case c[0] == "HDEL" && c[1] == layout.Registry():
			gone = append(gone, c[2:]...)
		case c[0] == "SREM" && strings.HasPrefix(c[1], layout.Devices("")):
			index = strings.TrimPrefix(c[1], layout.Devices(""))
		case (c[0] == "DEL" || c[0] == "UNLINK") && key(c) == layout.Registry() && len(e.Commands) > 1:
			v.fault(node, e, "the registry was deleted by a script")
		}
	}
	switch {
	case record != nil:
		v.batch(node, e, layout.Prefix+id, record, gone)
	case len(gone) > 0 && index == "":
		v.fault(node, e, "%d entries went without a record, and from no index", len(gone))
	case len(gone) > 0:
		v.released(node, e, index, gone)
	}
}

// batch judges an eviction.
func (v *verdict) batch(node string, e *history.Event, id string, record map[string]string, gone []string) {
	var imeis []string
	if err := json.Unmarshal([]byte(record["imeis"]), &imeis); err != nil {
		v.fault(node, e, "batch %s: %v", id, err)
	}
	ms, err := strconv.ParseInt(record["at"], 10, 64)
	if err != nil || record["count"] != strconv.Itoa(len(imeis)) {
		v.fault(node, e, "batch %s: count %s of %d, at %q", id, record["count"], len(imeis), record["at"])
	}
	// What was there before has been deleted before.
	if len(gone) > 0 && len(gone) != len(imeis) {
		v.fault(node, e, "batch %s: %d are recorded, %d went", id, len(imeis), len(gone))
	}
	at, owner := time.UnixMilli(ms), record["owner"]
	if since, lost := v.lost[node]; lost && at.After(since) {
		return
	}
	if !v.batches[id+owner] {
		v.batches[id+owner] = true
		v.evicted[owner] += len(imeis)
	}
	if !v.dead(owner, at) {
		v.fault(node, e, "batch %s at %s: %d entries of %s, which lives",
			id, at.Format("15:04:05.000"), len(imeis), owner)
	}
}

// dead tells whether an owner was killed, or did not run for about as long as a heartbeat lasts.
func (f facts) dead(owner string, at time.Time) bool {
	if killed, ok := f.killed[owner]; ok && !at.Before(killed) {
		return true
	}
	for _, o := range f.outages {
		end := o.To
		if end.IsZero() || end.After(at) {
			end = at
		}
		if o.ID == owner && end.Sub(o.From) >= f.ttl-2*f.interval && !end.Before(at.Add(-f.ttl)) {
			return true
		}
	}
	return false
}

// released judges entries that an owner took out itself: none of a socket that was open all the
// time. The file says the time in seconds.
func (v *verdict) released(node string, e *history.Event, owner string, gone []string) {
	for _, imei := range gone {
		for _, s := range v.sockets[imei] {
			if s.owner == owner && s.from.Unix() < e.Second-1 &&
				(s.until.IsZero() || s.until.Unix() > e.Second+1) {
				v.fault(node, e, "%s took out %s, whose socket is open", owner, imei)
			}
		}
	}
}

// readFile reads an append-only file. The end of one that is written yet is left out.
func readFile(path string) (history.History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return history.Parse(file)
}
