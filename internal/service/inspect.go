package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// errCluster ends the program: on one node of a Cluster most keys are refused, and what cannot be
// read must not look dead.
var errCluster = errors.New("service: REDIS_URL names a node of a Redis Cluster, which is not supported yet")

// How often the server's settings are looked at: until it has answered once, and then, since an
// operator or a failover may change them.
const (
	inspectFirst = 2 * time.Second
	inspectAgain = time.Minute
	inspectCall  = 2 * time.Second
)

// Inspector looks at the server's own settings, through INFO, which needs no rights beyond those of
// any client.
type Inspector struct {
	clients *Clients
	log     *slog.Logger

	mu       sync.Mutex
	warnings []string
	off      []string // checks that need what the server does not report
}

// Inspect looks once. It returns an error if the server must not be used: it is a node of a
// Cluster. A server that does not answer is no error.
func Inspect(ctx context.Context, clients *Clients, log *slog.Logger) (*Inspector, error) {
	i := &Inspector{clients: clients, log: log}
	if clients.Embedded != "" {
		log.Warn(EmbeddedNotice, "addr", clients.Embedded)
	}
	_, err := i.look(ctx)
	return i, err
}

// Status is what is known of the server.
func (i *Inspector) Status(reachable bool) RedisStatus {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := RedisStatus{Server: i.clients.Server, Embedded: i.clients.Embedded != "", Reachable: reachable}
	if s.Embedded {
		s.Warnings = []string{EmbeddedNotice}
	}
	s.Warnings, s.ChecksOff = append(s.Warnings, i.warnings...), slices.Clone(i.off)
	return s
}

// look asks once. It reports whether the server answered; the error is errCluster or nil.
func (i *Inspector) look(ctx context.Context) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, inspectCall)
	defer cancel()
	text, err := i.clients.Data.Info(ctx).Result()
	if err != nil {
		// The registry says it when Redis is away. A server that does not allow INFO is not looked
		// at.
		i.log.Debug("cannot look at the server's settings", "server", i.clients.Server, "error", err)
		return false, nil
	}
	info := parseInfo(text)
	if info["cluster_enabled"] == "1" || info["redis_mode"] == "cluster" {
		return true, fmt.Errorf("%w: %s", errCluster, i.clients.Server)
	}
	i.note(judge(info))
	return true, nil
}

// Run looks at the server until ctx ends. It returns the error that Inspect does.
func (i *Inspector) Run(ctx context.Context) error {
	for {
		answered, err := i.look(ctx)
		if err != nil {
			return err
		}
		pause := inspectFirst
		if answered {
			pause = inspectAgain
		}
		if !wait.For(ctx, pause) {
			return nil
		}
	}
}

// judge says what about a server puts the registry at risk, and which checks it leaves without
// their evidence.
func judge(info map[string]string) (warnings, off []string) {
	if p, limit := info["maxmemory_policy"], info["maxmemory"]; p != "" && p != "noeviction" && limit != "" && limit != "0" {
		warnings = append(warnings, "maxmemory-policy is "+p+": under pressure Redis may evict heartbeats, and then nothing is swept; set noeviction")
	}
	if info["role"] == "slave" {
		warnings = append(warnings, "this Redis is a replica and refuses writes; name the primary in REDIS_URL")
	}
	for _, c := range []struct{ evidence, check string }{
		{"evicted_keys", "evicted (heartbeats lost to memory pressure)"},
		{"maxmemory_policy", "memory policy (may heartbeats be evicted?)"},
		{"run_id", "run id (has the server restarted during a scan?)"},
	} {
		if _, reported := info[c.evidence]; !reported {
			off = append(off, c.check)
		}
	}
	return warnings, off
}

// note keeps what was found, and logs it when it is new.
func (i *Inspector) note(warnings, off []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, w := range warnings {
		if !slices.Contains(i.warnings, w) {
			i.log.Warn("this Redis needs attention", "server", i.clients.Server, "warning", w)
		}
	}
	if len(off) > 0 && !slices.Equal(off, i.off) {
		i.log.Warn("checks are off, since this Redis does not report what they need", "server", i.clients.Server, "checks", off)
	}
	i.warnings, i.off = warnings, off
}

// parseInfo reads the lines name:value of INFO.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = v
		}
	}
	return info
}
