package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// These errors end the program. One node of a Cluster refuses most keys, and unreadable entries
// must not pass for dead. Open recognises such a node unless it did not answer then, or its
// URL is only valid for a single server: with a database, for example. Servers that do not know
// each other are not asked.
var (
	errOneNode = errors.New("connect: REDIS_URL names one node of a Redis Cluster, and was not " +
		"recognised at the start; start again while that node answers, or name the Cluster by two of its " +
		"nodes, such as redis://host:6379?addr=host2:6379, without a database or a socket's path")
	errNoCluster = errors.New("connect: REDIS_URL names a Redis Cluster, and the server is in none")
)

// An operator or a failover may change the server's settings.
const (
	inspectFirst = 2 * time.Second
	inspectAgain = time.Minute
	inspectCall  = 2 * time.Second
)

const unverified = "Redis' certificate is not checked, so anybody on the way can read and change all that " +
	"is sent: take skip_verify=true out of REDIS_URL, and set REDIS_TLS_CA_FILE"

// Inspector reads the server's own settings by INFO, which needs no special rights.
type Inspector struct {
	clients *Clients
	log     *slog.Logger

	mu       sync.Mutex
	warnings []string
	off      []string // checks without the values that they need
}

// Inspect asks the server once. The error means that it must not be used: it is a node of a Cluster
// that [Open] did not recognise, or of none although a Cluster was named. A server that does not
// answer is not an error.
func Inspect(ctx context.Context, clients *Clients, log *slog.Logger) (*Inspector, error) {
	i := &Inspector{clients: clients, log: log}
	if clients.Embedded != "" {
		log.Warn(EmbeddedNotice, "addr", clients.Embedded)
	}
	_, err := i.ask(ctx)
	return i, err
}

// Run repeats the check until ctx ends, with the same errors.
func (i *Inspector) Run(ctx context.Context) error {
	for {
		answered, err := i.ask(ctx)
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

// RedisStatus describes the server.
type RedisStatus struct {
	// Server has no credentials.
	Server string `json:"server"`
	// Embedded is for trying out.
	Embedded bool `json:"embedded"`
	// Reachable means that the last heartbeat landed and no later one failed.
	Reachable bool `json:"reachable"`
	// Warnings are risks for the registry.
	Warnings []string `json:"warnings,omitempty"`
	// ChecksOff need what this server does not report.
	ChecksOff []string `json:"checks_off,omitempty"`
	// CertificateEnds is when the certificate expires that the server has shown.
	CertificateEnds time.Time `json:"certificate_ends,omitzero"`
}

// Status returns what is known.
func (i *Inspector) Status(reachable bool) RedisStatus {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := RedisStatus{Server: i.clients.Server, Embedded: i.clients.Embedded != "", Reachable: reachable}
	if ends := i.clients.ends; ends != nil && ends.Load() != nil {
		s.CertificateEnds = *ends.Load()
	}
	if s.Embedded {
		s.Warnings = []string{EmbeddedNotice}
	}
	s.Warnings, s.ChecksOff = append(s.Warnings, i.warnings...), slices.Clone(i.off)
	return s
}

func (i *Inspector) ask(ctx context.Context) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, inspectCall)
	defer cancel()
	var warnings, off []string
	if c, ok := i.clients.Data.(*redis.ClusterClient); ok {
		warnings, off, err = askMasters(ctx, c)
	} else {
		warnings, off, err = i.askServer(ctx)
	}
	for _, unfit := range []error{errOneNode, errNoCluster} {
		if errors.Is(err, unfit) {
			return true, fmt.Errorf("%w: %s", unfit, i.clients.Server)
		}
	}
	if err != nil {
		// The registry reports that Redis is down. A server that refuses INFO stays unknown.
		i.log.Debug("cannot read the server's settings", "server", i.clients.Server, "error", err)
		return false, nil
	}
	if i.clients.Unverified {
		warnings = append(warnings, unverified)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, w := range warnings {
		if !slices.Contains(i.warnings, w) {
			i.log.Warn("this Redis needs attention", "server", i.clients.Server, "warning", w)
		}
	}
	if len(off) > 0 && !slices.Equal(off, i.off) {
		level := slog.LevelWarn
		if i.clients.Embedded != "" {
			level = slog.LevelInfo
		}
		i.log.Log(ctx, level, "checks are off, since this Redis does not report what they need",
			"server", i.clients.Server, "checks", off)
	}
	i.warnings, i.off = warnings, off
	return true, nil
}

func (i *Inspector) askServer(ctx context.Context) (warnings, off []string, err error) {
	text, err := i.clients.Data.Info(ctx).Result()
	if err != nil {
		return nil, nil, err
	}
	info := parseInfo(text)
	if inCluster(info) {
		return nil, nil, errOneNode
	}
	warnings, off = judge(info)
	return warnings, off, nil
}

func inCluster(info map[string]string) bool {
	return info["cluster_enabled"] == "1" || info["redis_mode"] == "cluster"
}

// askMasters asks all: any may hold the keys that matter, now or later. Those that do not answer
// are skipped.
func askMasters(ctx context.Context, c *redis.ClusterClient) (warnings, off []string, err error) {
	var (
		mu       sync.Mutex
		answered bool
	)
	err = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		text, err := node.Info(ctx).Result()
		if err != nil {
			return err
		}
		w, o := judge(parseInfo(text))
		mu.Lock()
		defer mu.Unlock()
		answered = true
		for _, warning := range w {
			warnings = append(warnings, node.Options().Addr+": "+warning)
		}
		for _, check := range o {
			if !slices.Contains(off, check) {
				off = append(off, check)
			}
		}
		return nil
	})
	if err != nil && strings.Contains(err.Error(), "cluster support disabled") {
		return nil, nil, errNoCluster
	}
	if answered {
		err = nil
	}
	slices.Sort(warnings)
	slices.Sort(off)
	return warnings, off, err
}

func judge(info map[string]string) (warnings, off []string) {
	policy, limit := info["maxmemory_policy"], info["maxmemory"]
	if policy != "" && policy != "noeviction" && limit != "" && limit != "0" {
		warnings = append(warnings, "maxmemory-policy is "+policy+": under pressure Redis may evict "+
			"heartbeats, and then nothing is swept; set noeviction")
	}
	if info["role"] == "slave" {
		warnings = append(warnings,
			"this Redis is a replica and refuses writes; name the primary in REDIS_URL")
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

func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = v
		}
	}
	return info
}
