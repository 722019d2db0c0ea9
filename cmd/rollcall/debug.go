package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

func debug() *cli.Command {
	var f fleet
	var file string
	return &cli.Command{
		Name: "rollcall debug",
		About: `rollcall debug puts all that one asks for after an incident into one text: status,
doctor, the events of a day, and INFO of each server of Redis. It has no password, no
token and no IMEI, and says what could not be read. It changes nothing.

  rollcall debug --file incident.txt`,
		Settings: append([]cli.Setting{{Name: "file", Value: cli.Text(&file),
			Meaning: "where the text goes; - is stdout. Without it, rollcall-debug-TIME.txt here"}}, f.table()...),
		Check: f.check,
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			d := &dossier{at: time.Now().UTC()}
			d.section("about", nil, func(w io.Writer) error {
				return line(w, "rollcall %s at %s, Redis %s, prefix %q", cli.Version(), d.at.Format(time.RFC3339),
					f.base.Redis, f.layout().Prefix)
			})
			ask := f.ask(func(ctx context.Context, r *inspect.Reader, _ io.Writer) error {
				d.collect(ctx, r)
				return nil
			})
			if err := ask(ctx, stdout, stderr); err != nil {
				d.section("redis", err, nil)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			text := d.hide(f.base.Redis.Secrets())
			if file == "-" {
				_, err := stdout.Write(text)
				return err
			}
			file = cmp.Or(file, "rollcall-debug-"+d.at.Format("20060102T150405Z")+".txt")
			if err := created(file, text); err != nil {
				return err
			}
			return line(stdout, "%s is written; %d parts could not be read", file, d.unread)
		},
		Notes: exits,
	}
}

// created writes a file that must not exist.
func created(name string, text []byte) error {
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return cmp.Or(err, out.Close())
}

// dossier is a text in sections.
type dossier struct {
	at     time.Time
	text   bytes.Buffer
	unread int
	// ids are in sentences about entries, and may be no IMEIs.
	ids []string
}

// section adds what show writes, or why there is nothing.
func (d *dossier) section(name string, err error, show func(w io.Writer) error) {
	fmt.Fprintf(&d.text, "== %s ==\n", name)
	if err == nil {
		err = show(&d.text)
	}
	if err != nil {
		d.unread++
		fmt.Fprintf(&d.text, "not read: %v\n", err)
	}
	d.text.WriteByte('\n')
}

func (d *dossier) collect(ctx context.Context, r *inspect.Reader) {
	s, err := r.Status(ctx)
	d.ids = s.Unreadable
	d.section("status", err, func(w io.Writer) error { return cmp.Or(showStatus(w, s), writeJSON(w, whole(s))) })
	diagnosis, err := r.Doctor(ctx, 0)
	d.section("doctor", err, func(w io.Writer) error { return showDiagnosis(w, diagnosis, true) })
	events, err := r.Events(ctx, d.at.Add(-24*time.Hour))
	d.section("events", nil, func(w io.Writer) error { return cmp.Or(writeLines(w, events), err) })
	for server, info := range r.Infos(ctx) {
		d.section("INFO of "+server, nil, func(w io.Writer) error {
			_, err := io.WriteString(w, info)
			return err
		})
	}
}

var (
	// in a URL
	credentials = regexp.MustCompile(`://[^/\s"'@]*@`)
	fifteen     = regexp.MustCompile(`\b\d{15}\b`)
)

// leastID is the shortest id hidden: shorter ones identify nobody, and are parts of words.
const leastID = 6

// hide returns the text without these secrets, whatever looks like a URL's, and ids.
func (d *dossier) hide(secrets []string) []byte {
	text := d.text.Bytes()
	for _, id := range d.ids {
		if len(id) >= leastID {
			text = bytes.ReplaceAll(text, []byte(id), []byte("<id>"))
		}
	}
	for _, s := range secrets {
		quoted, _ := json.Marshal(s) // a string
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), strings.Trim(string(quoted), `"`)} {
			text = bytes.ReplaceAll(text, []byte(form), []byte("<secret>"))
		}
	}
	text = credentials.ReplaceAll(text, []byte("://<secret>@"))
	return fifteen.ReplaceAll(text, []byte("<imei>"))
}
