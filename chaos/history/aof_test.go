package history

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

// resp writes commands as an append-only file has them.
func resp(commands ...string) string {
	var b strings.Builder
	for _, c := range commands {
		if strings.HasPrefix(c, "#") {
			b.WriteString(c + "\r\n")
			continue
		}
		words := strings.Fields(c)
		b.WriteString("*" + strconv.Itoa(len(words)) + "\r\n")
		for _, w := range words {
			b.WriteString("$" + strconv.Itoa(len(w)) + "\r\n" + w + "\r\n")
		}
	}
	return b.String()
}

func TestParseReadsEventsInOrder(t *testing.T) {
	t.Parallel()
	h, err := Parse(strings.NewReader(resp("#TS:5", "SELECT 0", "set a 1", "MULTI", "HSET h a b", "XADD s 1-1 x y", "EXEC", "#TS:6", "DEL a")))
	require.NoError(t, err)
	require.Len(t, h, 3)
	require.Equal(t, []Command{{"SET", "a", "1"}}, h[0].Commands)
	require.Equal(t, []Command{{"HSET", "h", "a", "b"}, {"XADD", "s", "1-1", "x", "y"}}, h[1].Commands)
	require.Equal(t, int64(5), h[1].Second)
	require.Equal(t, int64(6), h[2].Second)
	require.Equal(t, int64(len(resp("#TS:5", "SELECT 0"))), h[0].Offset)
}

func TestParseLeavesOutWhatIsNotWrittenToItsEnd(t *testing.T) {
	t.Parallel()
	whole := resp("SET a 1", "MULTI", "SET b 2", "EXEC")
	for cut := range len(whole) {
		h, err := Parse(strings.NewReader(whole[:cut]))
		require.NoError(t, err)
		require.LessOrEqual(t, len(h), 1)
		for _, e := range h {
			require.Equal(t, []Command{{"SET", "a", "1"}}, e.Commands)
		}
	}
}

func TestParseForgetsAnEventThatAKilledServerDidNotFinish(t *testing.T) {
	t.Parallel()
	for name, next := range map[string][]string{
		"a command":            {"#TS:6", "SELECT 0", "SET c 3"},
		"another event":        {"#TS:6", "MULTI", "SELECT 0", "SET c 3", "EXEC"},
		"without annotations":  {"MULTI", "SELECT 0", "SET c 3", "EXEC"},
		"and it happens again": {"#TS:6", "MULTI", "SELECT 0", "SET d 4", "#TS:7", "SELECT 0", "SET c 3"},
	} {
		for _, left := range [][]string{{"MULTI"}, {"MULTI", "SELECT 0"}, {"MULTI", "SET b 2"}} {
			h, err := Parse(strings.NewReader(resp(append(append([]string{"#TS:5", "SET a 1"}, left...), next...)...)))
			require.NoError(t, err, name)
			require.Len(t, h, 2, name)
			require.Equal(t, []Command{{"SET", "a", "1"}}, h[0].Commands, name)
			require.Equal(t, []Command{{"SET", "c", "3"}}, h[1].Commands, name)
		}
	}
}

func TestParseRefusesWhatIsNoHistory(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a snapshot":        "REDIS0010\r\n",
		"another database":  resp("SELECT 1"),
		"no command":        "*0\r\n",
		"a length too long": "*1\r\n$9999999999\r\n",
		"a bad annotation":  "#TS:x\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(strings.NewReader(text))
			require.Error(t, err)
		})
	}
}

func TestReadRefusesARewrittenFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Read(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "appendonlydir"), 0o700))
	manifest := filepath.Join(dir, "appendonlydir", "appendonly.aof.manifest")
	require.NoError(t, os.WriteFile(manifest, []byte("file appendonly.aof.2.base.aof seq 2 type b\n"), 0o600))
	_, err = Read(dir)
	require.ErrorIs(t, err, ErrRewritten)
}

// Redis 8 says more of each file in its manifest than Redis 7 and Valkey do.
func TestTheManifestsOfAllServers(t *testing.T) {
	t.Parallel()
	const incr = "file appendonly.aof.1.incr.aof seq 1 type i"
	for name, c := range map[string]struct {
		line string
		ok   bool
	}{
		"Redis 7 and Valkey":         {incr, true},
		"Redis 8":                    {incr + " startoffset 0", true},
		"Redis 8, a file that ended": {incr + " startoffset 0 endoffset 33", true},
		"cut off":                    {incr + " startoffset", false},
		"without a type":             {"file appendonly.aof.1.incr.aof seq 1", false},
		"of something else":          {"name a seq 1 type i", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			inside := filepath.Join(dir, appendOnlyDir)
			require.NoError(t, os.Mkdir(inside, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(inside, "appendonly.aof.manifest"), []byte(c.line+"\n"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(inside, "appendonly.aof.1.incr.aof"), []byte("*2\r\n$3\r\nDEL\r\n$1\r\na\r\n"), 0o600))
			h, err := Read(dir)
			if !c.ok {
				require.ErrorContains(t, err, "manifest")
				return
			}
			require.NoError(t, err)
			require.Len(t, h, 1)
			require.Equal(t, []Command{{"DEL", "a"}}, h[0].Commands)
		})
	}
}

// played is what a history leaves.
func played(t *testing.T, h History) *Keyspace {
	t.Helper()
	model := NewKeyspace()
	for _, e := range h {
		for _, cmd := range e.Commands {
			require.NoError(t, model.Apply(cmd, registry.Layout{}))
		}
	}
	return model
}

func TestStreamEntriesAreFoundBehindTheirOptions(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"XADD s 5-1 a b", "XADD s NOMKSTREAM 5-1 a b", "XADD s MAXLEN 100 5-1 a b", "XADD s MAXLEN ~ 100 LIMIT 10 5-1 a b", "XADD s MINID = 4-0 5-1 a b",
	} {
		id, fields := StreamEntry(strings.Fields(text))
		require.Equal(t, "5-1", id, text)
		require.Equal(t, map[string]string{"a": "b"}, fields, text)
	}
}
