package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Errors of Run, wrapped.
var (
	// something that lives was removed, or an orphan is left
	ErrWrong = errors.New("cleanupdemo: not exactly the orphans went")
	// something that should have happened did not
	ErrLate = errors.New("cleanupdemo: waited in vain")
)

// Config configures a demo. All fields are required.
type Config struct {
	// Command returns the command of a worker, for which Run adds the environment.
	Command func(args ...string) *exec.Cmd
	// Ferret is the program that scripts/ferret prints.
	Ferret string
	// Redis is empty and used by nobody else; RedisURL is the worker's.
	Redis    redis.UniversalClient
	RedisURL string
	Out      io.Writer
}

const (
	prefix   = "{cleanup}:"
	patience = 2 * time.Minute // for anything that should happen
	poll     = 20 * time.Millisecond
	database = "/game"
)

type demo struct {
	cfg     Config
	began   time.Time
	dir     string // of logs and rules
	uri     string // of MongoDB
	backend *backend
	worker  *process.Process
	http    string
}

// Run plays the demo and judges its end. It returns nil if exactly the orphans were removed; else
// ErrWrong, ErrLate, the cause of ctx, or what failed. All its processes have ended by then.
func Run(ctx context.Context, cfg Config) (err error) {
	d := &demo{cfg: cfg, began: time.Now()}
	if d.dir, err = os.MkdirTemp("", "rollcall-cleanup-demo-"); err != nil {
		return fmt.Errorf("cleanupdemo: %w", err)
	}
	defer func() {
		if d.worker != nil {
			d.worker.Kill()
		}
		if err == nil || ctx.Err() != nil {
			_ = os.RemoveAll(d.dir)
			return
		}
		d.say("the worker's log is in %s", d.dir)
	}()
	ferret, err := d.startFerret()
	if err != nil {
		return err
	}
	defer ferret.Kill()
	client, err := mongo.Connect(options.Client().ApplyURI(d.uri).SetTimeout(patience))
	if err != nil {
		return fmt.Errorf("cleanupdemo: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }() // it ends with its server
	d.backend = newBackend(cfg.Redis, client.Database(strings.TrimPrefix(database, "/")))
	defer d.backend.close()
	err = d.play(ctx)
	if ctx.Err() != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return err
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.cfg.Out, "%5.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) startFerret() (*process.Process, error) {
	p, err := process.Start(exec.Command(d.cfg.Ferret), process.Options{Talk: true, OwnGroup: true})
	if err != nil {
		return nil, fmt.Errorf("cleanupdemo: FerretDB: %w", err)
	}
	if !p.Out.Scan() {
		p.Kill()
		return nil, fmt.Errorf("cleanupdemo: FerretDB ended without an address, with status %d", p.ExitCode())
	}
	d.uri = strings.TrimSuffix(p.Out.Text(), "/") + database
	return p, nil
}

// short maps times in the built-in rules to the demo's.
var short = map[string]string{
	"over: 120s":  "over: 2s",
	"grace: 60s":  "grace: 2s",
	"over: 10m":   "over: 10s",
	"or_for: 30m": "or_for: 5s",
	// This rule has the default, a minute.
	"- name: queue\n": "- name: queue\n  grace: 2s\n",
}

func (d *demo) rules() (string, error) {
	pack, _ := rules.Pack("colyseus")
	text := string(pack)
	for from, to := range short {
		if !strings.Contains(text, from) {
			return "", fmt.Errorf("cleanupdemo: the built-in rules have no %q any more", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	name := filepath.Join(d.dir, "rules.yaml")
	return name, os.WriteFile(name, []byte(text), 0o600)
}

func (d *demo) until(ctx context.Context, what string, happened func() (bool, error)) error {
	for end := time.Now().Add(patience); ; {
		done, err := happened()
		switch {
		case err != nil || done:
			return err
		case !d.worker.Runs():
			return fmt.Errorf("cleanupdemo: the worker has ended: %s", d.worker.Log())
		case time.Now().After(end):
			return fmt.Errorf("%w for %s", ErrLate, what)
		case !wait.For(ctx, poll):
			return context.Cause(ctx)
		}
	}
}

type status struct {
	Janitor struct {
		Witness struct {
			Listening float64 `json:"listening_seconds"`
			HeldFor   float64 `json:"held_for_seconds"`
		}
		Leading bool
	}
	Rules []struct {
		Rule, Outcome, Reason, Detail string
		Removed                       int `json:"removed_total"`
	}
	Stats struct {
		Cycles     int            `json:"totalCleanupsRun"`
		Cumulative map[string]any `json:"cumulativeStats"`
	}
}

var asker = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (d *demo) status(ctx context.Context) (s status, ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.http+"/api/v1/status", nil)
	if err != nil {
		return s, false
	}
	answer, err := asker.Do(req)
	if err != nil {
		return s, false
	}
	defer answer.Body.Close()
	return s, json.NewDecoder(answer.Body).Decode(&s) == nil
}

func (d *demo) start(ctx context.Context, environ []string) (err error) {
	cmd := d.cfg.Command()
	cmd.Env = append(cmd.Env, environ...)
	d.worker, err = process.Start(cmd, process.Options{Log: filepath.Join(d.dir, "worker.log"), OwnGroup: true})
	if err != nil {
		return fmt.Errorf("cleanupdemo: %w", err)
	}
	return d.until(ctx, "the worker to serve", func() (bool, error) {
		d.http = d.worker.Said("serving HTTP", "addr")
		return d.http != "", nil
	})
}

func (d *demo) stop() error {
	if err := d.worker.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-d.worker.Done():
	case <-time.After(patience):
		return fmt.Errorf("%w for the worker to stop", ErrLate)
	}
	if code := d.worker.ExitCode(); code != 0 {
		return fmt.Errorf("cleanupdemo: the worker ended with status %d", code)
	}
	return nil
}

// left returns the remaining orphans, or ErrWrong if something that lives does not.
func (d *demo) left(ctx context.Context) (left []string, err error) {
	there, err := d.backend.there(ctx)
	if err != nil {
		return nil, err
	}
	var gone []string
	for name := range d.backend.living {
		if !there[name] {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		slices.Sort(gone)
		return nil, fmt.Errorf("%w: these live, and are gone: %s", ErrWrong, strings.Join(gone, ", "))
	}
	maps.DeleteFunc(there, func(name string, _ bool) bool { return !d.backend.orphans[name] })
	return slices.Sorted(maps.Keys(there)), nil
}
