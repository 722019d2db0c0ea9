package deploy

import (
	"crypto/sha256"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// One program is built in two folders. What is equal then names neither.
func TestAProgramOfTheContainerIsStaticAndTheSameFromAnyFolder(t *testing.T) {
	t.Parallel()
	copied := t.TempDir()
	files := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	files.Dir, files.Stderr = "..", os.Stderr
	list, err := files.Output()
	require.NoError(t, err)
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		info, err := os.Stat("../" + name)
		if os.IsNotExist(err) {
			continue // removed, and git does not know yet
		}
		require.NoError(t, err)
		text, err := os.ReadFile("../" + name)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(copied, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(copied, name), text, info.Mode()))
	}
	here, there := build(t, ".."), build(t, copied)
	require.Contains(t, here, "ingest")
	require.Equal(t, here, there)
}

// build runs the container's build in a folder with the sources, and returns a sum of each program.
func build(t *testing.T, sources string) map[string][sha256.Size]byte {
	t.Helper()
	out := t.TempDir()
	cmd := exec.Command(filepath.Join(sources, "deploy/container/build"), out, "./cmd/ingest")
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false") // the copy has no history
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	programs, err := os.ReadDir(out)
	require.NoError(t, err)
	sums := make(map[string][sha256.Size]byte)
	for _, program := range programs {
		path := filepath.Join(out, program.Name())
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		sums[program.Name()] = sha256.Sum256(text)
		file, err := elf.Open(path)
		require.NoError(t, err)
		for _, segment := range file.Progs {
			require.NotEqual(t, elf.PT_INTERP, segment.Type, "%s needs a loader, and scratch has none",
				program.Name())
		}
		require.NoError(t, file.Close())
	}
	return sums
}

func TestTheImageIsFromScratchAndNotRoot(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("container/Containerfile")
	require.NoError(t, err)
	_, image, ok := strings.Cut(string(text), "\nFROM scratch\n")
	require.True(t, ok)
	require.Contains(t, image, "\nUSER 65532:65532\n")
	require.NotContains(t, image, "\nRUN ")
}

const unit = "systemd/rollcall@.service"

func TestSystemdAcceptsTheUnitAndFindsLittleExposed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(unit)
	require.NoError(t, err)
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("no systemd-analyze here: the unit is not verified")
		return
	}
	program, err := os.Executable()
	require.NoError(t, err)
	// The program is not installed here: another stands for it.
	file := filepath.Join(t.TempDir(), "rollcall@ingest.service")
	text = regexp.MustCompile(`(?m)^ExecStart=.*$`).ReplaceAll(text, []byte("ExecStart="+program))
	require.NoError(t, os.WriteFile(file, text, 0o600))
	for _, args := range [][]string{
		{"verify", "--man=no", file},
		{"security", "--offline=yes", "--threshold=20", "--no-pager", file}, // of 100; 0 is best
	} {
		out, err := exec.Command(analyze, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "Unknown", "%s", out)
	}
}

func TestTheUnitLeavesTimeToStopAndDoesNotRepeatWrongSettings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(unit)
	require.NoError(t, err)
	require.Contains(t, string(text), "\nTimeoutStopSec=20\n")
	require.Equal(t, "10s", settings(t, "ingest")["SHUTDOWN_GRACE"])
	require.Contains(t, string(text), "\nRestartPreventExitStatus=2\n")
}
