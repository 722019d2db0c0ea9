package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// recordFile names the file to which a run adds its evictions.
const recordFile = "ROLLCALL_RECORD"

// Record adds today's run, on servers such as "Cluster", if a file is named.
func Record(servers string, evictions, wrong int) error {
	path := os.Getenv(recordFile)
	if path == "" || evictions == 0 && wrong == 0 {
		return nil
	}
	version, err := redistest.Version()
	if err != nil {
		return err
	}
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("harness: record: %w", err)
	}
	_, err = fmt.Fprintf(file, "%s,%s,%s,%d,%d,%s\n", time.Now().UTC().Format(time.DateOnly), servers, version,
		evictions, wrong, strings.TrimSpace(string(commit)))
	return errors.Join(err, file.Close())
}
