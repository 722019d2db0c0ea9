package console

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/janitor"
)

// The page's text about a fleet before its script runs, or without it. page/show.js produces the
// same text for each later state: change both together.

// problems are those of this replica alone.
func (s Status) problems() (found []inspect.Problem) {
	if s.NotReady != "" {
		found = append(found, inspect.Problem{Name: "not_ready", Level: inspect.Warning,
			Sentence: "This replica, " + s.Instance + ", is not ready: " + s.NotReady + "."})
	}
	for _, text := range s.Redis.Warnings {
		if text == connect.EmbeddedNotice { // chosen on purpose, and shown in the part about this replica
			continue
		}
		found = append(found, inspect.Problem{Name: "redis:" + text, Level: inspect.Warning, Sentence: text})
	}
	return found
}

func unanswered(err error) inspect.Problem {
	p := inspect.Problem{Name: "unanswered", Level: inspect.Wrong,
		Sentence: "Redis does not answer this replica: " + strings.TrimRight(err.Error(), ".") + ".",
		Do:       "Look whether Redis runs, and at the network between. Ask another replica."}
	if redis.IsAuthError(err) || redis.IsPermissionError(err) {
		p.Do = "Redis refuses this replica's user: look at its password and rights. Ask another replica."
	}
	return p
}

// Title is the state in a word, for the browser's tab.
func (v pageView) Title() string {
	switch {
	case v.Fleet == nil:
		return "no answer"
	case len(v.Problems) > 0:
		return fmt.Sprintf("(%d) %s", len(v.Problems), v.Base.Instance)
	}
	return "well · " + v.Base.Instance
}

// Verdict is the state of the fleet in a sentence.
func (v pageView) Verdict() verdict {
	switch {
	case v.Fleet == nil:
		return verdict{"bad", "The state of the fleet is not known"}
	case len(v.Problems) == 0:
		return verdict{"good", "All is well"}
	}
	class := problemClass(v.Problems[0].Level)
	if len(v.Problems) == 1 {
		return verdict{class, "One thing needs a look"}
	}
	return verdict{class, fmt.Sprintf("%d things need a look", len(v.Problems))}
}

func problemClass(l inspect.Level) string {
	if l == inspect.Wrong {
		return "bad"
	}
	return "warn"
}

func living(s inspect.Status) string {
	live, devices := 0, int64(0)
	for _, in := range s.Instances {
		devices += max(0, in.Devices)
		if in.Alive {
			live++
		}
	}
	text := fmt.Sprintf("%s live", count(live))
	if silent := len(s.Instances) - live; silent > 0 {
		text += fmt.Sprintf(", %s silent", count(silent))
	}
	return text
}

func leaders(p *inspect.Partitions) string {
	var all []string
	for _, l := range p.Leaders {
		all = append(all, l.Instance+" "+inspect.Numbers(l.Partitions))
	}
	return cmp.Or(strings.Join(all, " · "), "nobody")
}

func unled(p *inspect.Partitions) string {
	if len(p.Unled) == 0 {
		return ""
	}
	return "nobody leads " + inspect.Numbers(p.Unled)
}

// held describes why deletes are held, and in which partitions if there are several.
func held(s inspect.Status) string {
	if s.Partitions == nil || len(s.Partitions.Holds) == 0 || s.Hold.Reason == "paused" {
		return s.Hold.Reason
	}
	var all []string
	for _, h := range s.Partitions.Holds {
		all = append(all, h.Reason+" in "+inspect.Numbers(h.Partitions))
	}
	return strings.Join(all, ", ")
}

// replicaLink names an instance, and its own page if its address can be reached.
type replicaLink struct{ Instance, URL string }

// hostAndPort is an address that can be reached, unless it is unspecified. It comes from Redis,
// where anybody may have written it.
var (
	hostAndPort = regexp.MustCompile(`(?i)^(\[[0-9a-f:.]+\]|[\w.-]+):\d+$`)
	unspecified = regexp.MustCompile(`^(\[::\]|0\.0\.0\.0):`)
)

func newReplicaLink(instance, address string) replicaLink {
	l := replicaLink{Instance: instance}
	if hostAndPort.MatchString(address) && !unspecified.MatchString(address) {
		l.URL = "http://" + address + "/"
	}
	return l
}

// oddity ranks instances: those to look at come first.
func oddity(s *inspect.Status, in inspect.Instance) int {
	switch {
	case !in.Alive:
		return 0
	case in.Differs != "":
		return 1
	case leads(s, in.ID) != "":
		return 2
	}
	return 3
}

// leads describes what an instance leads; "": nothing.
func leads(s *inspect.Status, id string) string {
	switch which := s.Partitions.Leads(id); {
	case len(which) > 0:
		return "leads " + inspect.Numbers(which)
	case s.Partitions == nil && s.Leader != nil && s.Leader.Instance == id:
		return "leads"
	}
	return ""
}

func sortedInstances(s *inspect.Status) []inspect.Instance {
	return slices.SortedFunc(slices.Values(s.Instances), func(a, b inspect.Instance) int {
		return cmp.Or(cmp.Compare(oddity(s, a), oddity(s, b)), strings.Compare(a.ID, b.ID))
	})
}

type instanceRow struct {
	Class, ID string
	Link      replicaLink
	Devices   string
	Life      float64
	Left      string
	Beat      string
	Running   string
	Version   string
	Remarks   string
}

func newInstanceRow(s *inspect.Status, in inspect.Instance, own string) instanceRow {
	row := instanceRow{
		ID: in.ID, Link: newReplicaLink(in.ID, in.Address), Devices: "?", Life: in.Life(), Left: in.ExpiresIn,
		Beat: ago(s.Now, in.LastBeat), Version: in.Version,
	}
	if in.Devices >= 0 {
		row.Devices = count(in.Devices)
	}
	if !in.Started.IsZero() {
		row.Running = inspect.Short(s.Now.Sub(in.Started))
	}
	var remarks []string
	add := func(is bool, text string) {
		if is {
			remarks = append(remarks, text)
		}
	}
	add(leads(s, in.ID) != "", leads(s, in.ID))
	add(in.ID == own, "this replica")
	add(!in.Alive && len(in.SilentIn) == 0, "silent")
	add(in.Differs != "", in.Differs)
	add(in.Old, "plain writer: not healed")
	row.Remarks = strings.Join(remarks, " · ")
	switch oddity(s, in) {
	case 0:
		row.Class, row.Left, row.Beat = "bad", "none", ""
		if !in.LastBeat.IsZero() {
			row.Beat = ago(s.Now, in.LastBeat)
		}
	case 1:
		row.Class = "warn"
	case 2:
		row.Class = "leads"
	}
	return row
}

type reportRow struct {
	janitor.Report
	Ago string
}
