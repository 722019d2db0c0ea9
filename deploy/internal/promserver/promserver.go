// Package promserver runs a Prometheus, for tests and for the demonstration fleet.
package promserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// ErrLate means that Prometheus did not serve in time.
var ErrLate = errors.New("promserver: waited in vain")

const (
	patience = time.Minute // usually a second
	poll     = 20 * time.Millisecond
)

// Config requires Bin, Dir and Every.
type Config struct {
	Bin   string        // program's folder; see scripts/prometheus
	Dir   string        // of its own, for configuration, data and log
	Addr  string        // empty: a free port of the loopback interface
	Every time.Duration // between scrapes, and between evaluations
	Rules []string      // files
}

// Server is a running Prometheus. It ends with this process at the latest.
type Server struct {
	*process.Process
	URL string
	API v1.API

	jobs string
}

// Start returns when Prometheus serves, without targets yet. Errors are ErrLate, the cause of ctx,
// and Prometheus' own.
func Start(ctx context.Context, c Config) (*Server, error) {
	s := &Server{jobs: filepath.Join(c.Dir, "jobs.json")}
	// JSON is YAML. A file of targets is read again when it changes.
	config, err := json.Marshal(map[string]any{
		"global": map[string]any{"scrape_interval": c.Every.String(),
			"evaluation_interval": c.Every.String()},
		"rule_files": c.Rules,
		"scrape_configs": []any{map[string]any{
			"job_name": "rollcall",
			"file_sd_configs": []any{map[string]any{
				"files": []string{s.jobs}, "refresh_interval": "1s",
			}},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("promserver: %w", err)
	}
	file := filepath.Join(c.Dir, "prometheus.yml")
	if err := errors.Join(os.WriteFile(file, config, 0o600), s.Scrape(nil)); err != nil {
		return nil, fmt.Errorf("promserver: %w", err)
	}
	s.Process, err = process.Start(exec.Command(filepath.Join(c.Bin, "prometheus"),
		"--config.file="+file, "--storage.tsdb.path="+filepath.Join(c.Dir, "data"), "--log.format=json",
		"--web.listen-address="+cmp.Or(c.Addr, "127.0.0.1:0")),
		process.Options{Log: filepath.Join(c.Dir, "prometheus.log"), OwnGroup: true})
	if err != nil {
		return nil, err
	}
	if err := s.serves(ctx); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

func (s *Server) serves(ctx context.Context) error {
	for end := time.Now().Add(patience); s.Said("Server is ready to receive web requests.", "msg") == ""; {
		switch {
		case !s.Runs():
			return fmt.Errorf("promserver: Prometheus has ended: %s", s.Log())
		case time.Now().After(end):
			return fmt.Errorf("%w for Prometheus to serve: %s", ErrLate, s.Log())
		case !wait.For(ctx, poll):
			return context.Cause(ctx)
		}
	}
	s.URL = "http://" + s.Said("Listening on", "address")
	// Kept connections would look like leaking goroutines.
	client, err := api.NewClient(api.Config{Address: s.URL,
		RoundTripper: &http.Transport{DisableKeepAlives: true}})
	if err != nil {
		return fmt.Errorf("promserver: %w", err)
	}
	s.API = v1.NewAPI(client)
	return nil
}

// Scrape sets the targets, as host:port by job.
func (s *Server) Scrape(jobs map[string][]string) error {
	groups := []any{}
	for job, addrs := range jobs {
		groups = append(groups, map[string]any{"targets": addrs, "labels": map[string]string{"job": job}})
	}
	text, err := json.Marshal(groups)
	if err != nil {
		return fmt.Errorf("promserver: %w", err)
	}
	// The rename keeps Prometheus from reading half a file.
	if err := os.WriteFile(s.jobs+".new", text, 0o600); err != nil {
		return fmt.Errorf("promserver: %w", err)
	}
	if err := os.Rename(s.jobs+".new", s.jobs); err != nil {
		return fmt.Errorf("promserver: %w", err)
	}
	return nil
}
