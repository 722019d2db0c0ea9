package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// AppendOnly are the settings of a redis-server whose history [ReadAppendOnly] can read.
//
// fsync is off: the server writes to the file before it answers all the same, and no scenario cuts the machine's power. A
// slow disk's fsync would stop the server for long enough to be a fault by itself.
func AppendOnly() []string {
	return []string{
		"--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0",
		"--aof-use-rdb-preamble", "no", "--aof-timestamp-enabled", "yes",
	}
}

// ErrRewritten is returned by ReadAppendOnly for a file whose beginning has been replaced by a snapshot.
var ErrRewritten = errors.New("chaos: the append-only file was rewritten, its history is gone")

// ReadAppendOnly reads the history of the redis-server that works in dir and was started with the settings of
// [AppendOnly], also while it runs or after it was killed: an event that is not written to its end is not part
// of it.
func ReadAppendOnly(dir string) (History, error) {
	dir = filepath.Join(dir, "appendonlydir")
	manifest, err := os.ReadFile(filepath.Join(dir, "appendonly.aof.manifest"))
	if err != nil {
		return nil, fmt.Errorf("chaos: manifest: %w", err)
	}
	var h History
	for line := range strings.Lines(string(manifest)) {
		// "file <name> seq <n> type b|i|h", in the order in which they are to be loaded
		words := strings.Fields(line)
		if len(words) != 6 {
			return nil, fmt.Errorf("chaos: manifest: line %q", line)
		}
		name, seq, kind := words[1], words[3], words[5]
		if kind == "h" {
			continue
		}
		if kind == "b" && seq != "1" {
			return nil, ErrRewritten
		}
		part, err := readFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("chaos: %s: %w", name, err)
		}
		h = append(h, part...)
	}
	return h, nil
}

func readFile(path string) (History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f)
}

// Parse reads a history in the format of an append-only file. A cut-off end is no error.
func Parse(r io.Reader) (History, error) {
	p := &parser{r: bufio.NewReaderSize(r, 1<<20)}
	var h History
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
	r      *bufio.Reader
	offset int64
	second int64 // of the last annotation
}

// event reads a command, or everything from MULTI to EXEC. A SELECT alone is an event without commands.
func (p *parser) event() (Event, error) {
	var e Event
	for first, open := true, false; ; first = false {
		begun := p.offset
		c, err := p.command()
		if err != nil {
			return Event{}, err
		}
		if first {
			e.Offset, e.Second = begun, p.second
		}
		switch c[0] {
		case "SELECT":
			// Everything of ours is in database 0; of another, keys of the same name would be mixed up.
			if len(c) != 2 || c[1] != "0" {
				return Event{}, fmt.Errorf("chaos: %v: only database 0 is understood", c)
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

// command reads one command and the annotations before it.
func (p *parser) command() (Command, error) {
	for {
		line, err := p.line()
		if err != nil {
			return nil, err
		}
		if ts, ok := strings.CutPrefix(line, "#TS:"); ok {
			if p.second, err = strconv.ParseInt(ts, 10, 64); err != nil {
				return nil, fmt.Errorf("chaos: annotation %q: %w", line, err)
			}
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		n, err := count(line, '*')
		if err != nil || n == 0 {
			return nil, fmt.Errorf("chaos: %.40q is no command: %w", line, err)
		}
		c := make(Command, n)
		for i := range c {
			if c[i], err = p.bulk(); err != nil {
				return nil, err
			}
		}
		c[0] = strings.ToUpper(c[0]) // it stands there as the client wrote it
		return c, nil
	}
}

func (p *parser) bulk() (string, error) {
	line, err := p.line()
	if err != nil {
		return "", err
	}
	n, err := count(line, '$')
	if err != nil {
		return "", err
	}
	b := make([]byte, n+2)
	read, err := io.ReadFull(p.r, b)
	p.offset += int64(read)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

func (p *parser) line() (string, error) {
	line, err := p.r.ReadString('\n')
	p.offset += int64(len(line))
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(line, "\r\n"), nil
}

// count reads "<mark><number>".
func count(line string, mark byte) (int, error) {
	if line == "" || line[0] != mark {
		return 0, fmt.Errorf("chaos: want %q, got %.40q", mark, line)
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 || n > 1<<29 {
		return 0, fmt.Errorf("chaos: bad length %.40q", line)
	}
	return n, nil
}
