package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/rollcall-redis/rollcall/internal/process"
)

type replica struct {
	*process.Process
	id     string
	addr   atomic.Value // string, set once it serves
	killed atomic.Bool  // by the demo
}

// url is "" until it serves.
func (r *replica) url() string {
	addr, _ := r.addr.Load().(string)
	if addr == "" {
		return ""
	}
	return "http://" + addr
}

func (d *demo) launch(ctx context.Context, id string) (*replica, error) {
	cmd := d.cfg.Command()
	cmd.Env = append(cmd.Env, d.environment(id)...)
	child, err := process.Start(cmd, process.Options{Log: filepath.Join(d.dir, id+".log"), OwnGroup: true})
	if err != nil {
		return nil, fmt.Errorf("availabilitydemo: start %s: %w", id, err)
	}
	r := &replica{Process: child, id: id}
	d.mu.Lock()
	d.all = append(d.all, r)
	d.mu.Unlock()
	return r, d.until(ctx, id+" to serve", func(context.Context) (bool, error) {
		r.addr.Store(r.Said("serving HTTP", "addr"))
		return r.url() != "", nil
	})
}

func (r *replica) kill() {
	r.killed.Store(true)
	r.Kill()
}

func (d *demo) killAll() {
	for _, r := range d.running() {
		r.kill()
	}
}

func (d *demo) running() []*replica {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.all), func(r *replica) bool { return r.killed.Load() })
}

func (r *replica) complaint() error {
	text := r.Log()
	return fmt.Errorf("availabilitydemo: %s has ended: %s", r.id, text[max(0, len(text)-1000):])
}

func (d *demo) balance() (targets []string) {
	for _, r := range d.running() {
		targets = append(targets, r.url())
	}
	if d.force != nil {
		d.force.SetTargets(targets...)
	}
	return targets
}

// leader returns nil if none leads or Redis does not answer.
func (d *demo) leader(ctx context.Context) *replica {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	holder, err := d.elector.Holder(ctx)
	if err != nil {
		return nil
	}
	for _, r := range d.running() {
		if r.id == holder.Instance {
			return r
		}
	}
	return nil
}
