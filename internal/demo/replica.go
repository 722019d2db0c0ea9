package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rollcall-redis/rollcall/internal/service"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// replica is a process of the real program.
type replica struct {
	id      string
	cmd     *exec.Cmd
	log     string        // the file
	done    chan struct{} // closed when the process has ended
	leaving bool          // its end is part of the story
	devices string        // where devices connect
	http    string
}

// launch starts a replica and waits until it serves devices. Its errors are ErrLate, the cause of ctx, and what the replica says.
func (d *demo) launch(ctx context.Context, id string) (*replica, error) {
	r := &replica{id: id, log: filepath.Join(d.dir, id+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	defer log.Close() // the child has its own
	r.cmd = d.cfg.Command()
	r.cmd.Env = append(r.cmd.Env, d.settings(id)...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.SysProcAttr = ownGroup()
	started := make(chan error, 1)
	go func() {
		// The kernel's death signal goes out when the thread that forked ends: this one is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(r.done)
		err := r.cmd.Start()
		started <- err
		if err == nil {
			_ = r.cmd.Wait() // the log says more than the status
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("demo: start %s: %w", id, err)
	}
	d.all = append(d.all, r)
	for until := time.Now().Add(d.pace.Patience); r.devices == "" || r.http == ""; {
		if !r.runs() {
			return nil, r.complaint()
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%w for %s to serve devices", ErrLate, id)
		}
		if !wait.For(ctx, d.pace.look) {
			return nil, context.Cause(ctx)
		}
		r.devices, r.http = r.said("listening for devices"), r.said("serving HTTP")
	}
	return r, nil
}

// said returns the address in the first line of the log with that message; "" while there is none.
func (r *replica) said(message string) string {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		var record struct{ Msg, Addr string }
		if json.Unmarshal([]byte(line), &record) == nil && record.Msg == message {
			return record.Addr
		}
	}
	return ""
}

// complaint is the end of the log, as an error.
func (r *replica) complaint() error {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return fmt.Errorf("demo: %s has ended: %w", r.id, err)
	}
	return fmt.Errorf("demo: %s has ended: %s", r.id, text[max(0, len(text)-1000):])
}

// runs tells whether the process has not ended.
func (r *replica) runs() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// kill ends the process at once, and returns when it is gone. Its error is nil.
func (r *replica) kill() error {
	r.leaving = true
	_ = r.cmd.Process.Kill() // fails only if it has gone already
	<-r.done
	return nil
}

// term asks the process to stop gracefully. It does not wait for it.
func (r *replica) term() error {
	r.leaving = true
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
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
