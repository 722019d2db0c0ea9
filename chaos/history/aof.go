package history

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unique"

	"github.com/redis/go-redis/v9"
)

// Read reads a run's parts in their order: working folders of servers started with [AppendOnly] or
// put through [Begin], and files that [Write] wrote. A folder after another part is a new life of
// the server.
//
// A folder can be read while its server runs, and after it was killed: an incomplete event at the
// end is left out, as a restarted server cuts it off.
func Read(parts ...string) (h History, err error) {
	for i, path := range parts {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("history: part of a history: %w", err)
		}
		var part History
		if info.IsDir() {
			part, err = readFolder(path, i > 0)
		} else {
			part, err = readFile(path)
		}
		if err != nil {
			return nil, err
		}
		for k := range part {
			part[k].Part = i
		}
		h = append(h, part...)
	}
	return h, nil
}

// AppendOnly returns the settings of a redis-server that writes its history.
//
// fsync is off: the server still writes to the file before it answers, and no scenario cuts the
// machine's power. A slow disk's fsync could stop the server for long enough to be a fault in
// itself.
func AppendOnly() []string {
	return []string{
		"--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0",
		"--aof-use-rdb-preamble", "no", "--aof-timestamp-enabled", "yes",
	}
}

// Begin makes a running server write its history from its present content on. The folder can be
// read a moment later.
func Begin(ctx context.Context, c *redis.Client) error {
	args := []any{"CONFIG", "SET"}
	for _, word := range AppendOnly() {
		args = append(args, strings.TrimPrefix(word, "--"))
	}
	return c.Do(ctx, args...).Err()
}

const appendOnlyDir = "appendonlydir"

// SetAside moves a killed server's history into another folder, so that its next life does not load
// it.
func SetAside(dir, to string) error {
	return os.Rename(filepath.Join(dir, appendOnlyDir), filepath.Join(to, appendOnlyDir))
}

// ErrRewritten means that a snapshot replaced the beginning.
var ErrRewritten = errors.New("history: the append-only file was rewritten, its history is gone")

// readFolder: the first part's content, or an empty one in a second folder, begins a life.
func readFolder(dir string, another bool) (h History, err error) {
	dir = filepath.Join(dir, appendOnlyDir)
	manifest, err := os.ReadFile(filepath.Join(dir, "appendonly.aof.manifest"))
	if err != nil {
		return nil, fmt.Errorf("history: manifest: %w", err)
	}
	for line := range strings.Lines(string(manifest)) {
		// Redis 8 adds pairs of words, which describe the file's place in the replication stream.
		var name, kind string
		var seq int
		_, err := fmt.Sscanf(line, "file %s seq %d type %s", &name, &seq, &kind)
		if err != nil || len(strings.Fields(line))%2 != 0 {
			return nil, fmt.Errorf("history: manifest: line %q", line)
		}
		if kind == "h" {
			continue
		}
		if kind == "b" && seq != 1 {
			return nil, ErrRewritten
		}
		part, err := readFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if kind == "b" && (another || len(part) > 0) {
			life := Event{Commands: []Command{{LifeCommand, name}}}
			for _, e := range part {
				life.Second = e.Second
				life.Commands = append(life.Commands, e.Commands...)
			}
			part = History{life}
		}
		h = append(h, part...)
	}
	return h, nil
}

func readFile(path string) (History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	defer f.Close()
	h, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("history: %s: %w", path, err)
	}
	return h, nil
}

// Parse reads the format of an append-only file. A cut-off end is not an error.
func Parse(r io.Reader) (h History, err error) {
	p := &parser{r: bufio.NewReaderSize(r, 1<<20)}
	for {
		e, err := p.event()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return h, nil
		case err != nil:
			return nil, fmt.Errorf("at byte %d: %w", p.offset, err)
		case len(e.Commands) > 0:
			h = append(h, e)
		}
	}
}

type parser struct {
	r           *bufio.Reader
	offset      int64
	second      int64 // last annotation
	annotations int
	buf         []byte
}

// event reads a command, or everything from MULTI to EXEC. A SELECT alone is an event without
// commands.
//
// A server that was killed while writing an event may leave its MULTI and the following commands
// in the file, and continue after them when it is restarted. It has executed none of them. The
// sign is a time or another MULTI within an event, where a server writes neither.
func (p *parser) event() (Event, error) {
	var e Event
	for first, open := true, false; ; first = false {
		begun, annotated := p.offset, p.annotations
		c, err := p.command()
		if err != nil {
			return Event{}, err
		}
		if open && (p.annotations > annotated || c[0] == "MULTI") {
			first, open, e.Commands = true, false, nil
		}
		if first {
			e.Offset, e.Second = begun, p.second
		}
		switch c[0] {
		case "SELECT":
			// Keys of the same name in another database would be mixed up with ours.
			if len(c) != 2 || c[1] != "0" {
				return Event{}, fmt.Errorf("%v: only database 0 is understood", c)
			}
		case "MULTI":
			open = true
		case "EXEC":
			return e, nil
		default:
			e.Commands = append(e.Commands, c)
		}
		if !open {
			return e, nil
		}
	}
}

func (p *parser) command() (Command, error) {
	for {
		line, err := p.line()
		if err != nil {
			return nil, err
		}
		if ts, ok := bytes.CutPrefix(line, []byte("#TS:")); ok {
			if p.second, err = strconv.ParseInt(string(ts), 10, 64); err != nil {
				return nil, fmt.Errorf("annotation %q: %w", line, err)
			}
			p.annotations++
		}
		if bytes.HasPrefix(line, []byte("#")) {
			continue
		}
		n, err := count(line, '*')
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%.40q is no command: %w", line, err)
		}
		c := make(Command, n)
		for i := range c {
			if c[i], err = p.bulk(); err != nil {
				return nil, err
			}
		}
		c[0] = strings.ToUpper(c[0]) // as the client wrote it
		return c, nil
	}
}

// bulk keeps each word once: histories repeat them over and over.
func (p *parser) bulk() (string, error) {
	line, err := p.line()
	if err != nil {
		return "", err
	}
	n, err := count(line, '$')
	if err != nil {
		return "", err
	}
	p.buf = slices.Grow(p.buf[:0], n+2)[:n+2]
	read, err := io.ReadFull(p.r, p.buf)
	p.offset += int64(read)
	if err != nil {
		return "", err
	}
	word := string(p.buf[:n])
	if n <= 64 {
		word = unique.Make(word).Value()
	}
	return word, nil
}

// The line is valid until the next one is read.
func (p *parser) line() ([]byte, error) {
	line, err := p.r.ReadSlice('\n')
	p.offset += int64(len(line))
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line, []byte("\r\n")), nil
}

func count(line []byte, mark byte) (int, error) {
	if len(line) < 2 || line[0] != mark {
		return 0, fmt.Errorf("want %q, got %.40q", mark, line)
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < 0 || n > 1<<29 {
		return 0, fmt.Errorf("bad length %.40q", line)
	}
	return n, nil
}

// CopyPart copies a part, which may still be growing.
func CopyPart(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil { // of an earlier run
		return err
	}
	if info.IsDir() { // a server's folder holds more than the history
		return os.CopyFS(filepath.Join(to, appendOnlyDir), os.DirFS(filepath.Join(from, appendOnlyDir)))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// Write writes a part for Read.
func Write(path string, h History) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	w, second := bufio.NewWriter(file), int64(0)
	for _, e := range h {
		if e.Second != second {
			second = e.Second
			fmt.Fprintf(w, "#TS:%d\r\n", second)
		}
		commands := e.Commands
		if len(commands) > 1 {
			commands = slices.Concat([]Command{{"MULTI"}}, commands, []Command{{"EXEC"}})
		}
		for _, c := range commands {
			fmt.Fprintf(w, "*%d\r\n", len(c))
			for _, word := range c {
				fmt.Fprintf(w, "$%d\r\n%s\r\n", len(word), word)
			}
		}
	}
	return errors.Join(w.Flush(), file.Close())
}
