package console

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/janitor"
)

// Title is the text of the browser's tab.
func (v pageView) Title() string {
	text := "well · "
	switch {
	case v.Fleet == nil, v.Old != "":
		text = "no answer · "
	case len(v.Problems) > 0:
		text = fmt.Sprintf("(%d) ", len(v.Problems))
	}
	return text + v.Base.Instance + " · Rollcall"
}

// Names lists the problems: a change is news for a person.
func (v pageView) Names() string {
	var all []string
	for _, p := range v.Problems {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

func (v pageView) Verdict() verdict {
	switch {
	case v.Fleet == nil:
		return verdict{"bad", "The state of the fleet is not known"}
	case v.Old != "":
		return verdict{"bad", "Redis cannot be asked. This is " + v.Old + " old"}
	case len(v.Problems) == 0:
		return verdict{"good", "All is well"}
	case v.starting():
		return verdict{"new", "Just started"}
	}
	class := v.ClassOf(v.Problems[0])
	if len(v.Problems) == 1 {
		return verdict{class, "One thing needs a look"}
	}
	return verdict{class, fmt.Sprintf("%d things need a look", len(v.Problems))}
}

// Few reports whether there is room beneath the instances.
func (v pageView) Few() bool { return v.Fleet == nil || len(v.Fleet.Instances) <= fewRows }

const fewRows = 15

// justStarted is how long the usual troubles of a start are no problems.
const justStarted = 30 * time.Second

// starting reports whether the fleet has just started, and has no other problem.
func (v pageView) starting() bool {
	for _, in := range v.Fleet.Instances {
		if !in.Alive || in.Started.IsZero() || v.Fleet.Now.Sub(in.Started) > justStarted {
			return false
		}
	}
	for _, p := range v.Problems {
		switch p.Name {
		case "leader", "witness":
		case "failing:not_ready":
			if v.Base.Time.Sub(v.Base.Started) > justStarted {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func (v pageView) ClassOf(p inspect.Finding) string {
	switch {
	case v.Fleet != nil && v.starting():
		return "new"
	case p.Level == inspect.Wrong:
		return "bad"
	}
	return "warn"
}

// Acting describes what the buttons can do here.
func (v pageView) Acting() string {
	switch {
	case v.Fleet == nil:
		return ""
	case v.Fleet.Leads(v.Base.Instance) != "" && v.Fleet.Partitions != nil:
		return "This replica " + v.Fleet.Leads(v.Base.Instance) + " of the partitions, and sweeps these."
	case v.Fleet.Leads(v.Base.Instance) != "":
		return "This replica leads."
	case v.Fleet.Leader == nil:
		return "Nobody leads: only pause and resume work."
	}
	return "Pause and resume work here. Only the leader sweeps and resigns:"
}

// Elsewhere returns another replica that leads.
func (v pageView) Elsewhere() *replicaName {
	if v.Fleet == nil || v.Fleet.Leader == nil || v.Fleet.Leads(v.Base.Instance) != "" {
		return nil
	}
	l := newReplicaName(v.Fleet.Leader.Instance, v.Fleet.Leader.Address)
	return &l
}

// mostOwners bounds a form's suggestions.
const mostOwners = 200

func owners(s *inspect.Status) (ids []string) {
	for _, in := range s.Instances[:min(len(s.Instances), mostOwners)] {
		ids = append(ids, in.ID)
	}
	return ids
}

func sweepNames(s *inspect.Status) (names []string) {
	for _, p := range s.Passes {
		names = append(names, p.Sweep)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// People know a term by its start.
type term struct {
	Epoch uint64
	Since string
}

func newTerm(epoch uint64, now time.Time) term {
	t := term{epoch, "an unknown time"}
	if at := time.UnixMicro(int64(min(epoch, math.MaxInt64))); at.Year() > 2000 && at.Before(now.Add(time.Hour)) {
		t.Since = clock(at) + ", " + ago(now, at)
		if now.Sub(at) > 24*time.Hour {
			t.Since = at.UTC().Format(time.DateOnly) + " " + clock(at)
		}
	}
	return t
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

// held names what stops sweeping.
func held(s *inspect.Status) string {
	f := s.Stopped()
	if f == nil {
		return "allowed"
	}
	if s.Hold != nil && s.Hold.Young {
		return "soon"
	}
	_, reason, _ := strings.Cut(f.Name, ":")
	return "not now: " + cmp.Or(reason, strings.ReplaceAll(f.Name, "_", " "))
}

// replicaName shows an address as text: it comes from Redis, and a link could lead whoever has the
// token to anybody who writes there.
type replicaName struct{ Instance, Address string }

func newReplicaName(instance, address string) replicaName { return replicaName{instance, address} }

func oddity(s *inspect.Status, in inspect.Instance) int {
	switch {
	case !in.Alive:
		return 0
	case in.Differs != "" || s.Late(in):
		return 1
	case s.Leads(in.ID) != "":
		return 2
	}
	return 3
}

type instanceList struct {
	Rows   []instanceRow
	More   bool   // not all instances are shown, or more than usual
	Shown  string // how many of how many
	Button string
}

// mostAll bounds what one viewer may have rendered.
const mostRows, mostAll = 50, 1000

// List returns the instances that the viewer wants.
func (v pageView) List() instanceList {
	s := v.Fleet
	var wanted []inspect.Instance
	most := int64(1)
	for _, in := range s.Instances {
		most = max(most, in.Devices)
		matches := v.Look.Match == "" || strings.Contains(strings.ToLower(in.ID), v.Look.Match) ||
			strings.Contains(strings.ToLower(in.Version), v.Look.Match)
		if matches && (!v.Look.Odd || oddity(s, in) < 2) {
			wanted = append(wanted, in)
		}
	}
	slices.SortFunc(wanted, func(a, b inspect.Instance) int {
		return cmp.Or(cmp.Compare(oddity(s, a), oddity(s, b)), natural(a.ID, b.ID))
	})
	show := mostRows
	if v.Look.All {
		show = mostAll
	}
	shown := wanted[:min(len(wanted), show)]
	l := instanceList{More: len(shown) < len(s.Instances) || len(shown) > mostRows}
	l.Shown = fmt.Sprintf("%s of %s instances", count(len(shown)), count(len(s.Instances)))
	switch {
	case len(shown) < min(len(wanted), mostAll):
		l.Button = "Show all " + count(min(len(wanted), mostAll))
	case len(shown) > mostRows:
		l.Button = fmt.Sprintf("Show %d", mostRows)
	}
	for _, in := range shown {
		l.Rows = append(l.Rows, newInstanceRow(s, in, v.Base.Instance, most))
	}
	return l
}

// natural puts ingest-10 after ingest-9.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := leadingNumber(a), leadingNumber(b)
		if x != "" && y != "" {
			p, q := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if c := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q)); c != 0 {
				return c
			}
			a, b = a[len(x):], b[len(y):]
			continue
		}
		if a[0] != b[0] {
			break
		}
		a, b = a[1:], b[1:]
	}
	return strings.Compare(a, b)
}

func leadingNumber(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}

type instanceRow struct {
	Class, ID string
	Name      replicaName
	Remarks   string
	Devices   string
	Share     float64 // in percent of the largest
	Life      float64
	Left      string
	Beat      string
	Running   string
	Version   string
	Short     string // version
}

func newInstanceRow(s *inspect.Status, in inspect.Instance, own string, most int64) instanceRow {
	row := instanceRow{
		ID: in.ID, Name: newReplicaName(in.ID, in.Address), Devices: "?", Life: in.Life(), Left: in.ExpiresIn,
		Version: in.Version, Short: inspect.Version(in.Version),
	}
	if in.Devices >= 0 {
		row.Devices = count(in.Devices)
		row.Share = math.Round(1000*float64(in.Devices)/float64(most)) / 10
	}
	if !in.Started.IsZero() {
		row.Running = inspect.Short(s.Now.Sub(in.Started))
	}
	if !in.LastBeat.IsZero() {
		row.Beat = strings.Replace(inspect.Ago(s.Now.Sub(in.LastBeat).Truncate(time.Second)), "just ", "", 1)
	}
	remarks := s.Remarks(in)
	switch {
	case !in.Alive && len(in.SilentIn) == 0:
		remarks = slices.Insert(remarks, 0, "silent")
	case s.Late(in):
		remarks = slices.Insert(remarks, 0, "late")
	}
	if in.ID == own {
		remarks = append(remarks, "this replica")
	}
	row.Remarks = strings.Join(remarks, " · ")
	switch oddity(s, in) {
	case 0:
		row.Class, row.Left = "bad", "none"
	case 1:
		row.Class = "warn"
	case 2:
		row.Class = "leads"
	}
	return row
}

type reportTable struct {
	Caption string
	Reports []janitor.Report
	Now     time.Time
}

// Of returns an instance, or nil.
func (v pageView) Of(id string) *inspect.Instance {
	if v.Fleet == nil {
		return nil
	}
	for _, in := range v.Fleet.Instances {
		if in.ID == id {
			return &in
		}
	}
	return nil
}
