package connect

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

const (
	checkAgain = 2 * time.Second
	checkCall  = 2 * time.Second
)

const unverified = "Redis' certificate is not checked, so anybody on the way can read and change all that " +
	"is sent: take skip_verify=true out of REDIS_URL, and set REDIS_TLS_CA_FILE"

// Check asks the server once, by INFO. The error means that it must not be used: it is a node of a
// Cluster that [Open] did not recognise, or of none although a Cluster was named. A server that does
// not answer is not an error; known is true if it did, or if this user may not ask.
func (c *Clients) Check(ctx context.Context) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkCall)
	defer cancel()
	text, err := c.Data.Info(ctx).Result()
	_, cluster := c.Data.(*redis.ClusterClient)
	switch {
	case err != nil && strings.Contains(err.Error(), "cluster support disabled"):
		return true, fmt.Errorf("%w: %s", errNoCluster, c.Server)
	case err == nil && !cluster && inCluster(text):
		return true, fmt.Errorf("%w: %s", errOneNode, c.Server)
	}
	return err == nil || redis.IsPermissionError(err), nil
}

// Watch repeats Check until the server is known, or ctx ends.
func (c *Clients) Watch(ctx context.Context) error {
	for wait.For(ctx, checkAgain) {
		if known, err := c.Check(ctx); known {
			return err
		}
	}
	return nil
}

func inCluster(info string) bool {
	return strings.Contains(info, "\ncluster_enabled:1") || strings.Contains(info, "\nredis_mode:cluster")
}

// RedisStatus describes the server.
type RedisStatus struct {
	// Server has no credentials.
	Server string `json:"server"`
	// Embedded is for trying out.
	Embedded bool `json:"embedded"`
	// Reachable means that the last heartbeat landed and no later one failed.
	Reachable bool `json:"reachable"`
	// Warnings are risks of the settings for the registry.
	Warnings []string `json:"warnings,omitempty"`
	// CertificateEnds is when the certificate expires that the server has shown.
	CertificateEnds time.Time `json:"certificate_ends,omitzero"`
}

// Status returns what is known.
func (c *Clients) Status(reachable bool) RedisStatus {
	s := RedisStatus{Server: c.Server, Embedded: c.Embedded != "", Reachable: reachable}
	if c.ends != nil && c.ends.Load() != nil {
		s.CertificateEnds = *c.ends.Load()
	}
	if s.Embedded {
		s.Warnings = append(s.Warnings, EmbeddedNotice)
	}
	if c.Unverified {
		s.Warnings = append(s.Warnings, unverified)
	}
	return s
}
