package service

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/janitor"
)

//go:embed page.html
var pageText string

// pageTemplate shows a [Status], and in it the program's own part. It refreshes itself, and needs
// nothing from elsewhere.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"ago": ago, "span": span, "seconds": seconds, "count": count, "sweeping": sweeping, "leader": leader,
	"percent": func(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }, "slowed": slowed,
	"outcome": outcome,
	"whole":   func(f float64) int { return int(f) },
}).Parse(pageText))

func (s *HTTP) page(w http.ResponseWriter, _ *http.Request) {
	var body bytes.Buffer
	if err := s.template.Execute(&body, s.cfg.Status()); err != nil {
		s.cfg.Logger.Error("cannot show the status page", "error", err)
		fail(w, http.StatusInternalServerError, "the status page is broken; /api/v1/status has the same")
		return
	}
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	write(w, http.StatusOK, "text/html; charset=utf-8", body.Bytes())
}

// verdict is a state in words, and its class on the page: good, warn or bad.
type verdict struct{ Class, Text string }

// outcome says how a pass ended, and why it was held.
func outcome(o janitor.Outcome, reason string) verdict {
	switch o {
	case janitor.Done:
		return verdict{"good", "done"}
	case janitor.Held:
		return verdict{"warn", "held: " + reason}
	}
	return verdict{"bad", string(o)}
}

// leader says who leads, as far as that is known.
func leader(s Stated) verdict {
	st := s.common()
	j := st.Janitor
	switch {
	case j.Leading:
		return verdict{"good", "this replica leads"}
	case j.Leader == "":
		return verdict{"warn", "nobody is known to lead"}
	case !st.Redis.Reachable || j.Witness.Error != "":
		return verdict{"warn", "not known now; " + j.Leader + " led when Redis last answered"}
	}
	return verdict{"good", j.Leader + " leads"}
}

// sweeping says whether anything may be swept now, and if not, why.
func sweeping(j janitor.Status) verdict {
	w := j.Witness
	switch {
	case j.Paused != nil:
		return verdict{"warn", pause(j.Paused)}
	case w.Error != "":
		return verdict{"warn", "held: Redis does not answer"}
	case w.LastTick.IsZero():
		return verdict{"warn", "held: Redis has not answered yet"}
	case w.HeldFor > 0:
		text := "held for " + seconds(w.HeldFor) + " more: Redis has not been listened to for long enough"
		if w.Reason != "" {
			text += " since hold “" + w.Reason + "”"
		}
		return verdict{"warn", text}
	case j.DryRun:
		return verdict{"warn", "dry run: judged and reported, nothing deleted"}
	}
	return verdict{"good", "allowed: Redis has been listened to without a hold"}
}

// pause says who holds sweeping, why, and until when. Of a key that somebody wrote by hand only the
// text is known: the key may have an expiry.
func pause(p *janitor.Pause) string {
	if p.Who == "" {
		return "paused: " + p.Why
	}
	until := "until resumed"
	if !p.Until.IsZero() {
		until = "until " + p.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("paused by %s: %s (%s)", p.Who, p.Why, until)
}

// slowed says why sweeping goes slower than it may.
func slowed(reason string) string {
	switch reason {
	case "latency":
		return "Redis takes longer than usual"
	case "heartbeat":
		return "a heartbeat comes late"
	}
	return reason
}

// ago is how long before now a time was.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	if now.Sub(t) < time.Second {
		return "just now"
	}
	return span(now.Sub(t)) + " ago"
}

// seconds is span of a number of seconds.
func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

// span is a duration with two units at most.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}

// count groups the digits of a number.
func count(n any) string {
	s := fmt.Sprint(n)
	if _, err := strconv.ParseUint(s, 10, 64); err != nil {
		return s
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
