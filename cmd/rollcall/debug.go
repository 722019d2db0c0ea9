package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/printable"
)

func debug() *cli.Command {
	var f fleet
	var file string
	var since moment
	return &cli.Command{
		Name: "rollcall debug",
		About: `rollcall debug puts all that one asks for after an incident into one archive: status, doctor
and events, INFO and harmless settings of each server of Redis, and status and metrics of
the replicas that their addresses in Redis, or --http, lead to. It has no password, no
token and no IMEI, and lists what could not be read. It changes nothing.`,
		Settings: append(f.table(), f.replicas(),
			cli.Setting{Name: "file", Value: cli.Text(&file),
				Meaning: "where the archive goes; - is stdout. Without it, rollcall-debug-TIME.tar.gz here"},
			cli.Setting{Name: "since", Default: eventsSince, Value: since.parse,
				Meaning: "how far back events go: a duration, or a time in RFC 3339"}),
		Check: f.check,
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			now := time.Now().UTC()
			a := &archive{now: now, hide: f.redactor(), addresses: map[string]string{}}
			ask := f.ask(func(ctx context.Context, r *inspect.Reader, _ io.Writer) error {
				f.collect(ctx, r, a, since.before(now))
				return nil
			})
			a.failed("redis", ask(ctx, stdout, stderr))
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			f.collectReplicas(ctx, a)
			file = cmp.Or(file, "rollcall-debug-"+now.Format("20060102T150405Z")+".tar.gz")
			if err := a.write(file, stdout); err != nil || file == "-" {
				return err
			}
			if f.json {
				return writeJSON(stdout, map[string]any{"file": file, "files": len(a.files), "failed": a.failures})
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

func (f *fleet) collect(ctx context.Context, r *inspect.Reader, a *archive, since time.Time) {
	a.add("about.txt", fmt.Appendf(nil, "rollcall %s\nat %s\nRedis %s\nprefix %q\n", cli.Version(),
		a.now.Format(time.RFC3339), f.base.Redis, f.layout().Prefix))
	if s, err := f.status(ctx, r); err == nil {
		for _, in := range s.Instances {
			if in.Alive && in.Address != "" {
				a.addresses["http://"+in.Address] = in.ID
			}
		}
		a.unreadable = s.Unreadable
		a.json("status.json", whole(s))
		a.text("status.txt", func(w io.Writer) error { return showStatus(w, s) })
	} else {
		a.failed("status", err)
	}
	d, err := r.Doctor(ctx)
	if a.failed("doctor", err); err == nil {
		a.text("doctor.txt", func(w io.Writer) error { return showDiagnosis(w, d) })
	}
	events, err := r.Events(ctx, since)
	a.failed("events", err)
	a.text("events.txt", func(w io.Writer) error { return showEvents(w, events) })
	a.text("events.jsonl", func(w io.Writer) error { return writeLines(w, events) })
	for _, m := range r.Members(ctx) {
		name := "redis/" + fileName(m.Server)
		if m.Error != "" {
			a.failed(name, errors.New(m.Error))
			continue
		}
		a.add(name+"/info.txt", []byte(m.Info))
		if m.Config != "" {
			a.add(name+"/config.txt", []byte(m.Config))
		}
	}
}

const mostReplicas = 50

// collectReplicas never sends the token, and keeps only what says that it is the replica whose
// address Redis named: that may lead anywhere.
func (f *fleet) collectReplicas(ctx context.Context, a *archive) {
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(f.http, slices.Collect(maps.Keys(a.addresses))))))
	for _, base := range all[:min(len(all), mostReplicas)] {
		name := "replicas/" + fileName(hostOf(base))
		status, err := get(ctx, base+"/api/v1/status")
		if wanted := a.addresses[base]; err == nil && wanted != "" && !slices.Contains(f.http, base) {
			err = isOf(status, wanted)
		}
		if err != nil {
			a.failed(name, err)
			continue
		}
		a.add(name+"/status.json", status)
		metrics, err := get(ctx, base+"/metrics")
		if a.failed(name+"/metrics.txt", err); err == nil {
			a.add(name+"/metrics.txt", metrics)
		}
	}
}

func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	_, body, err := call(ctx, http.MethodGet, url, "")
	return body, err
}

func isOf(status []byte, instance string) error {
	var says struct{ Instance string }
	if json.Unmarshal(status, &says) != nil || says.Instance != instance {
		return errors.New("what answers is not " + printable.Clip(instance))
	}
	return nil
}

func fileName(address string) string {
	return strings.NewReplacer(":", "_", "/", "_", "..", "_").Replace(address)
}

var (
	// in a URL
	credentials = regexp.MustCompile(`://[^/\s"'@]*@`)
	fifteen     = regexp.MustCompile(`\b\d{15}\b`)
)

// redactor takes out all secrets that this process was given, whatever looks like a URL's, and
// IMEIs. The collected texts should have none, except IMEIs in sentences.
func (f *fleet) redactor() func(text []byte) []byte {
	secrets := append(f.base.Redis.Secrets(), string(f.base.AdminToken))
	for _, base := range f.http {
		if u, err := url.Parse(base); err == nil && u.User != nil {
			password, _ := u.User.Password()
			secrets = append(secrets, password)
		}
	}
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
	return func(text []byte) []byte {
		for _, s := range secrets {
			forms := []string{s, url.QueryEscape(s), url.PathEscape(s)}
			if quoted, err := json.Marshal(s); err == nil {
				forms = append(forms, string(quoted[1:len(quoted)-1]))
			}
			for _, form := range forms {
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
	now       time.Time
	hide      func(text []byte) []byte
	files     []file
	failures  []string
	addresses map[string]string // from Redis, with the instances that are to be there
	// unreadable are ids in sentences about entries, which may be no IMEIs.
	unreadable []string
}

type file struct {
	name string
	text []byte
}

func (a *archive) add(name string, text []byte) { a.files = append(a.files, file{name, text}) }

func (a *archive) json(name string, v any) {
	a.text(name, func(w io.Writer) error { return writeJSON(w, v) })
}

func (a *archive) text(name string, write func(w io.Writer) error) {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		a.failed(name, err)
		return
	}
	a.add(name, b.Bytes())
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
		a.add("not-read.txt", []byte(strings.Join(a.failures, "\n")+"\n"))
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
