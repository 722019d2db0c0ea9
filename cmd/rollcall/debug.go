package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
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
		About: `rollcall debug puts all that one asks for after an incident into one archive: status,
doctor, the events of a day, and INFO of each server of Redis. It has no password, no
token and no IMEI, and lists what could not be read. It changes nothing.

  rollcall debug --file incident.tar.gz`,
		Settings: append([]cli.Setting{{Name: "file", Value: cli.Text(&file),
			Meaning: "where the archive goes; - is stdout. Without it, rollcall-debug-TIME.tar.gz here"}}, f.table()...),
		Check: f.check,
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			now := time.Now().UTC()
			a := &archive{now: now, hide: redactor(f.base.Redis.Secrets())}
			ask := f.ask(func(ctx context.Context, r *inspect.Reader, _ io.Writer) error {
				f.collect(ctx, r, a)
				return nil
			})
			a.failed("redis", ask(ctx, stdout, stderr))
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			file = cmp.Or(file, "rollcall-debug-"+now.Format("20060102T150405Z")+".tar.gz")
			if err := a.write(file, stdout); err != nil || file == "-" {
				return err
			}
			for _, text := range a.failures {
				if err := line(stdout, "not read: %s", text); err != nil {
					return err
				}
			}
			return line(stdout, "%s has %d files", file, len(a.files))
		},
		Notes: exits,
	}
}

func (f *fleet) collect(ctx context.Context, r *inspect.Reader, a *archive) {
	a.files = append(a.files, entry{"about.txt", fmt.Appendf(nil, "rollcall %s\nat %s\nRedis %s\nprefix %q\n",
		cli.Version(), a.now.Format(time.RFC3339), f.base.Redis, f.layout().Prefix)})
	s, err := r.Status(ctx)
	if a.failed("status", err); err == nil {
		a.unreadable = s.Unreadable
		a.text("status.json", func(w io.Writer) error { return writeJSON(w, whole(s)) })
		a.text("status.txt", func(w io.Writer) error { return showStatus(w, s) })
	}
	d, err := r.Doctor(ctx, 0)
	if a.failed("doctor", err); err == nil {
		a.text("doctor.txt", func(w io.Writer) error { return showDiagnosis(w, d, true) })
	}
	events, err := r.Events(ctx, a.now.Add(-24*time.Hour))
	a.failed("events", err)
	a.text("events.jsonl", func(w io.Writer) error { return writeLines(w, events) })
	for server, info := range r.Infos(ctx) {
		a.files = append(a.files, entry{"redis/" + strings.NewReplacer(":", "_", "/", "_").Replace(server), []byte(info)})
	}
}

var (
	// in a URL
	credentials = regexp.MustCompile(`://[^/\s"'@]*@`)
	fifteen     = regexp.MustCompile(`\b\d{15}\b`)
)

// redactor takes out these secrets, whatever looks like a URL's, and IMEIs.
func redactor(secrets []string) func(text []byte) []byte {
	return func(text []byte) []byte {
		for _, s := range secrets {
			quoted, _ := json.Marshal(s) // a string
			for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), strings.Trim(string(quoted), `"`)} {
				text = bytes.ReplaceAll(text, []byte(form), []byte("<secret>"))
			}
		}
		text = credentials.ReplaceAll(text, []byte("://<secret>@"))
		return fifteen.ReplaceAll(text, []byte("<imei>"))
	}
}

// leastID is the shortest id hidden: shorter ones identify nobody, and are parts of words.
const leastID = 6

type archive struct {
	now      time.Time
	hide     func(text []byte) []byte
	files    []entry
	failures []string
	// unreadable are ids in sentences about entries, which may be no IMEIs.
	unreadable []string
}

type entry struct {
	name string
	text []byte
}

func (a *archive) text(name string, show func(w io.Writer) error) {
	var b bytes.Buffer
	if err := show(&b); err != nil {
		a.failed(name, err)
		return
	}
	a.files = append(a.files, entry{name, b.Bytes()})
}

func (a *archive) failed(name string, err error) {
	if err != nil {
		a.failures = append(a.failures, string(a.hide([]byte(name+": "+err.Error()))))
	}
}

// write writes to a file that must not exist.
func (a *archive) write(to string, stdout io.Writer) (err error) {
	w := stdout
	if to != "-" {
		out, failed := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if failed != nil {
			return failed
		}
		defer func() { err = cmp.Or(err, out.Close()) }()
		w = out
	}
	if len(a.failures) > 0 {
		a.files = append(a.files, entry{"not-read.txt", []byte(strings.Join(a.failures, "\n") + "\n")})
	}
	zipped := gzip.NewWriter(w)
	t := tar.NewWriter(zipped)
	for _, f := range a.files {
		text := f.text
		for _, id := range a.unreadable {
			if len(id) >= leastID {
				text = bytes.ReplaceAll(text, []byte(id), []byte("<id>"))
			}
		}
		text = a.hide(text)
		head := tar.Header{Name: "rollcall-debug/" + f.name, Mode: 0o600, Size: int64(len(text)), ModTime: a.now}
		if err := t.WriteHeader(&head); err != nil {
			return err
		}
		if _, err := t.Write(text); err != nil {
			return err
		}
	}
	return cmp.Or(t.Close(), zipped.Close())
}
