package handlers

import (
	_ "embed"
	"fmt"
	"html/template"
	"time"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/janitor"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"text": printable.Text, "ago": ago, "sweeping": sweeping,
}).Parse(pageText))

type view struct {
	rollcall.Status
	Owners []rollcall.Owner
	More   int    // not shown
	Error  string // of reading owners
	Now    time.Time
}

// Leader is nobody where this replica does not know.
func (v view) Leader() string {
	switch {
	case v.Janitor == nil:
		return "not known here: this replica has no janitor"
	case v.Janitor.Leading:
		return "this replica"
	case v.Janitor.Leader == "":
		return "not known here"
	}
	return v.Janitor.Leader
}

func sweeping(j *janitor.Status) string {
	if j == nil {
		return "not known here: this replica has no janitor"
	}
	w := j.Witness
	switch {
	case j.Paused != nil:
		return "paused: " + j.Paused.Why
	case w.Error != "":
		return "held: Redis does not answer: " + w.Error
	case w.LastTick.IsZero():
		return "not known here: this replica has not listened to Redis yet"
	case w.HeldFor > 0:
		text := fmt.Sprintf("begins in %.0f s, when Redis has been listened to for long enough", w.HeldFor)
		if w.Reason != "" {
			text += " since hold " + w.Reason
		}
		return text
	case j.DryRun:
		return "dry run: judged and reported, nothing deleted"
	}
	return "allowed"
}

func ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return now.Sub(t).Round(100*time.Millisecond).String() + " ago"
}
