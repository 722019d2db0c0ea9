package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// CLI returns the redis-cli (or valkey-cli) of the usual server. A server from scripts/redis is
// started by a script, with its own libraries; so is its redis-cli.
func CLI(t testing.TB) string {
	t.Helper()
	server, err := findBinary()
	require.NoError(t, err)
	dir, name := filepath.Split(server)
	cli := strings.Replace(name, "-server", "-cli", 1)
	if _, err := os.Stat(filepath.Join(dir, cli)); err == nil {
		return filepath.Join(dir, cli)
	}
	text, err := os.ReadFile(server)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(text), "#!"), "beside %s there is no %s", server, cli)
	script := regexp.MustCompile(`(?m)^here=.*$`).ReplaceAllLiteralString(string(text), "here='"+dir+"'")
	script = strings.Replace(script, "/usr/bin/"+name, "/usr/bin/"+cli, 1)
	path := filepath.Join(t.TempDir(), cli)
	// A process forked meanwhile would have the file open for writing, and until it runs its own
	// program, starting this one would fail (golang.org/issue/22315).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}

// Version returns its make and version, as "Redis 7.0.15".
func Version() (string, error) {
	server, err := findBinary()
	if err != nil {
		return "", err
	}
	said, err := exec.Command(server, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("redistest: %s --version: %w", server, err)
	}
	found := versioned.FindSubmatch(said)
	if found == nil {
		return "", fmt.Errorf("redistest: %s --version says %q", server, said)
	}
	return string(found[1]) + " " + string(found[2]), nil
}

var versioned = regexp.MustCompile(`^(Redis|Valkey) server v=(\S+)`)
