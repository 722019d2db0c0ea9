package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// cached is where scripts/redis leaves a server, below the module's root.
const cached = ".cache/redis/redis-server"

var errNoBinary = errors.New("redistest: no redis-server found: run \"make redis\", or set REDIS_SERVER")

// findBinary returns the redis-server to start. REDIS_SERVER is an order, not a
// hint: when it cannot be run nothing else is tried, or a test would pass on
// another server than the one that was asked for.
func findBinary() (string, error) {
	if named := os.Getenv("REDIS_SERVER"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("redistest: REDIS_SERVER: %w", err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("redis-server"); err == nil {
		return path, nil
	}
	return findCached()
}

// findCached looks beside every go.mod from the working directory upwards: go
// test runs in the package's folder, and the examples are modules within ours.
func findCached() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("redistest: working directory: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if path, err := exec.LookPath(filepath.Join(dir, cached)); err == nil {
				return path, nil
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errNoBinary
		}
		dir = parent
	}
}
