package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
)

type replica struct {
	*process.Process
	id      string
	leaving bool   // asked to end
	devices string // address
	http    string
}

const (
	pollEvery = 20 * time.Millisecond // of Redis or of a log
	askTime   = time.Second           // bounds a request to a replica
)

// launch waits until the replica serves devices. It returns ErrLate, the cause of ctx, or the
// replica's own complaint.
func (d *demo) launch(ctx context.Context, id string) (*replica, error) {
	cmd := d.cfg.Command()
	p := d.pace
	cmd.Env = append(cmd.Env,
		"REDIS_URL="+d.cfg.RedisURL, "INSTANCE_ID="+id, "INGEST_ADDR=127.0.0.1:0", "HTTP_ADDR=127.0.0.1:0",
		"HEARTBEAT_INTERVAL="+p.Beat.String(), "HEARTBEAT_TTL="+p.TTL.String(),
		"JANITOR_INTERVAL="+p.Interval.String(), "JANITOR_LEASE_TTL="+p.Lease.String(),
		"INGEST_MAX_CONNS="+strconv.Itoa(4*d.cfg.Devices), "LOG_FORMAT=json")
	child, err := process.Start(cmd, process.Options{Log: filepath.Join(d.dir, id+".log"), OwnGroup: true})
	if err != nil {
		return nil, fmt.Errorf("demo: start %s: %w", id, err)
	}
	r := &replica{Process: child, id: id}
	d.all = append(d.all, r)
	for until := time.Now().Add(p.Patience); r.devices == "" || r.http == ""; {
		if !r.Runs() {
			return nil, r.complaint()
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%w for %s to serve devices", ErrLate, id)
		}
		if !wait.For(ctx, pollEvery) {
			return nil, context.Cause(ctx)
		}
		r.devices, r.http = r.Said("listening for devices", "addr"), r.Said("serving HTTP", "addr")
	}
	return r, nil
}

func (r *replica) complaint() error {
	text := r.Log()
	return fmt.Errorf("demo: %s has ended: %s", r.id, text[max(0, len(text)-1000):])
}

// asker keeps no connections, so that none remains to a replica that is killed.
var asker = &http.Client{Timeout: askTime, Transport: &http.Transport{DisableKeepAlives: true}}

func (r *replica) janitor(ctx context.Context) (janitor.Status, bool) {
	var s console.Status
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.http+"/api/v1/status", nil)
	if err != nil {
		return s.Janitor, false
	}
	answer, err := asker.Do(req)
	if err != nil {
		return s.Janitor, false
	}
	defer answer.Body.Close()
	err = json.NewDecoder(answer.Body).Decode(&s)
	return s.Janitor, err == nil
}

// running omits the replicas that were asked to end.
func (d *demo) running() []*replica {
	return slices.DeleteFunc(slices.Clone(d.all), func(r *replica) bool { return r.leaving })
}

func (d *demo) called(id string) *replica {
	if i := slices.IndexFunc(d.all, func(r *replica) bool { return r.id == id }); i >= 0 {
		return d.all[i]
	}
	return nil
}

func (d *demo) balance() {
	var addrs []string
	for _, r := range d.running() {
		addrs = append(addrs, r.devices)
	}
	d.fleet.SetTargets(addrs...)
}
