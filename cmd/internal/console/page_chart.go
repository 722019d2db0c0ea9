package console

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// From above: entries, registrations, which grow up from the axis, and evictions, which hang down.
const (
	chartWidth  = 600.0
	entriesTop  = 6.0
	entriesBase = 76.0
	chartAxis   = 112.0
	barsUp      = 32.0
	barsDown    = 34.0
	barWidth    = 8.0
	minuteWide  = chartWidth / 60
	leastBar    = 2.5 // of anything at all
)

type chart struct {
	Entries    int64
	Counted    bool // registrations
	Registered int64
	Evicted    int
	Deaths     int
	Terms      int
	Held       time.Duration
	Summary    string

	Holds      []box
	Grid       []float64
	Area, Line string // entries
	Bars       []box
	Marks      []mark
	Times      []string
}

type box struct {
	Class, Title        string
	X, Y, Width, Height float64
}

type mark struct {
	Class, Title string
	X            float64
}

func (v pageView) Chart() chart {
	now := v.Fleet.Now
	c := chart{Entries: v.Fleet.Entries}
	for minutes := 60; minutes >= 0; minutes -= 10 {
		at := now.Add(-time.Duration(minutes) * time.Minute)
		c.Times = append(c.Times, at.UTC().Format("15:04"))
		if minutes > 0 && minutes < 60 {
			c.Grid = append(c.Grid, x(now, at))
		}
	}
	events := slices.Clone(v.Timeline)
	slices.Reverse(events) // oldest first
	c.holds(events, now, v.Fleet.Hold)
	c.entries(v.minutes, now)
	c.registrations(v.minutes, now)
	c.evictions(events, now)
	c.marks(events, now)
	c.Summary = fmt.Sprintf("The last hour by the minute: %s entries now, %s evicted, %d died, %d terms; held for %s",
		count(c.Entries), count(c.Evicted), c.Deaths, c.Terms, inspect.Short(c.Held))
	return c
}

func x(now, at time.Time) float64 {
	return tenth(chartWidth * (1 - min(1, max(0, now.Sub(at).Hours()))))
}

func tenth(f float64) float64 { return math.Round(10*f) / 10 }

func (c *chart) holds(events []timeline.Event, now time.Time, present *inspect.Hold) {
	open := map[string]timeline.Event{}
	shade := func(e timeline.Event, from, to time.Time) {
		title := "held: " + e.Reason
		if e.Kind == timeline.Pause || e.Kind == timeline.Resume {
			title = "paused"
		}
		left := x(now, from)
		c.Held += to.Sub(from).Round(time.Second)
		c.Holds = append(c.Holds, box{Title: title + ", " + clock(from) + " to " + clock(to), X: left,
			Width: tenth(max(1, x(now, to)-left))})
	}
	for _, e := range events {
		key := e.Reason
		if e.Kind == timeline.Pause || e.Kind == timeline.Resume {
			key = "paused"
		}
		begun, is := open[key]
		switch e.Kind {
		case timeline.Hold, timeline.Pause:
			if !is {
				open[key] = e
			}
		case timeline.HoldOver, timeline.Resume:
			if !is {
				begun = timeline.Event{At: now.Add(-time.Hour), Kind: e.Kind, Reason: e.Reason}
			}
			shade(begun, begun.At, e.At)
			delete(open, key)
		}
	}
	for key, e := range open {
		if present != nil && present.Reason == key { // else its end was not recorded
			shade(e, e.At, now)
		}
	}
}

// entries interrupts the line where nobody counted.
func (c *chart) entries(minutes []timeline.Minute, now time.Time) {
	minutes = append(slices.Clone(minutes), timeline.Minute{At: now, Entries: c.Entries, Registered: -1})
	most := int64(1)
	for _, m := range minutes {
		most = max(most, m.Entries)
	}
	var line, area strings.Builder
	begun := 0.0
	for i, m := range minutes {
		at := x(now, m.At)
		y := tenth(entriesBase - (entriesBase-entriesTop)*float64(m.Entries)/float64(most))
		const gap = 150 * time.Second
		if i == 0 || m.At.Sub(minutes[i-1].At) > gap {
			if i > 0 {
				fmt.Fprintf(&area, "V%gH%gZ", entriesBase, begun)
			}
			begun = at
			fmt.Fprintf(&line, "M%g %g", at, y)
			fmt.Fprintf(&area, "M%g %gV%g", at, entriesBase, y)
			continue
		}
		fmt.Fprintf(&line, "L%g %g", at, y)
		fmt.Fprintf(&area, "L%g %g", at, y)
	}
	if len(minutes) > 1 {
		fmt.Fprintf(&area, "V%gH%gZ", entriesBase, begun)
		c.Line, c.Area = line.String(), area.String()
	}
}

// registrations draws square roots: an ordinary minute shows beside a storm.
func (c *chart) registrations(minutes []timeline.Minute, now time.Time) {
	most := int64(1)
	for _, m := range minutes {
		most = max(most, m.Registered)
		c.Registered += max(0, m.Registered)
		c.Counted = c.Counted || m.Registered >= 0
	}
	for _, m := range minutes {
		if m.Registered <= 0 {
			continue
		}
		height := tenth(max(leastBar, barsUp*math.Sqrt(float64(m.Registered)/float64(most))))
		c.Bars = append(c.Bars, box{
			Class: "registered",
			Title: fmt.Sprintf("%s registered in the minute to %s", count(m.Registered), clock(m.At)),
			X:     tenth(max(0, x(now, m.At)-minuteWide+1)), Y: chartAxis - height,
			Width: barWidth, Height: height,
		})
	}
}

// evictions stacks the owners of a minute.
func (c *chart) evictions(events []timeline.Event, now time.Time) {
	type minute struct {
		sum int
		of  []timeline.Event
	}
	by := make([]minute, 60)
	most := 1
	for _, e := range events {
		ago := int(now.Sub(e.At).Minutes())
		if e.Kind != timeline.Eviction || ago < 0 || ago >= len(by) {
			continue
		}
		m := &by[ago]
		m.sum, m.of = m.sum+e.Count, append(m.of, e)
		most = max(most, m.sum)
		c.Evicted += e.Count
	}
	for ago, m := range by {
		y := chartAxis
		for i, e := range m.of {
			height := tenth(max(leastBar, barsDown*float64(e.Count)/float64(most)))
			height = min(height, chartAxis+barsDown-y)
			if height <= 0 {
				break
			}
			c.Bars = append(c.Bars, box{[]string{"evicted", "evicted other"}[i%2], clock(e.At) + ": " + e.Sentence,
				tenth(chartWidth - minuteWide*float64(ago+1) + 1), y, barWidth, height})
			y += height
		}
	}
}

func (c *chart) marks(events []timeline.Event, now time.Time) {
	for _, e := range events {
		at := x(now, e.At)
		switch e.Kind {
		case timeline.Term:
			c.Terms++
			c.Marks = append(c.Marks, mark{"mark", clock(e.At) + ": " + e.Instance + " leads", at})
		case timeline.Death:
			c.Deaths++
			c.Marks = append(c.Marks, mark{"death", clock(e.At) + ": " + e.Sentence, at})
		}
	}
}
