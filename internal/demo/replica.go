package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/service"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// replica is a process of the real program.
type replica struct {
	*process.Process
	id      string
	leaving bool   // its end is part of the story
	devices string // where devices connect
	http    string
}

// launch starts a replica and waits until it serves devices. Its errors are ErrLate, the cause of
// ctx, and what the replica says.
func (d *demo) launch(ctx context.Context, id string) (*replica, error) {
	cmd := d.cfg.Command()
	cmd.Env = append(cmd.Env, d.settings(id)...)
	p, err := process.Start(cmd, process.Options{Log: filepath.Join(d.dir, id+".log"), OwnGroup: true})
	if err != nil {
		return nil, fmt.Errorf("demo: start %s: %w", id, err)
	}
	r := &replica{Process: p, id: id}
	d.all = append(d.all, r)
	for until := time.Now().Add(d.pace.Patience); r.devices == "" || r.http == ""; {
		if !r.Runs() {
			return nil, r.complaint()
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%w for %s to serve devices", ErrLate, id)
		}
		if !wait.For(ctx, d.pace.look) {
			return nil, context.Cause(ctx)
		}
		r.devices, r.http = r.Said("listening for devices", "addr"), r.Said("serving HTTP", "addr")
	}
	return r, nil
}

// complaint is the end of the log, as an error.
func (r *replica) complaint() error {
	text := r.Log()
	return fmt.Errorf("demo: %s has ended: %s", r.id, text[max(0, len(text)-1000):])
}

// kill ends the process at once, and returns when it is gone. Its error is nil.
func (r *replica) kill() error {
	r.leaving = true
	r.Kill()
	return nil
}

// term asks the process to stop gracefully. It does not wait for it.
func (r *replica) term() error {
	r.leaving = true
	if err := r.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("demo: stop %s: %w", r.id, err)
	}
	return nil
}

// asker keeps no connection, so that none is left to a replica that is killed.
var asker = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// status is what the replica says of itself; false if it does not answer.
func (r *replica) status(ctx context.Context) (s service.Status, ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.http+"/api/v1/status", nil)
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

// running are the replicas whose end is not part of the story, or has not come yet.
func (d *demo) running() []*replica {
	return slices.DeleteFunc(slices.Clone(d.all), func(r *replica) bool { return r.leaving })
}

// called finds a replica by its id; nil: there is none.
func (d *demo) called(id string) *replica {
	for _, r := range d.all {
		if r.id == id {
			return r
		}
	}
	return nil
}

// balance sends the next connections to the replicas that run.
func (d *demo) balance() {
	var addrs []string
	for _, r := range d.running() {
		addrs = append(addrs, r.devices)
	}
	d.fleet.SetTargets(addrs...)
}
