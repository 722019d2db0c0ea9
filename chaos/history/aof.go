package history

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Read reads a run that was recorded in parts, in their order: a part is the working folder of a
// server that was started with [AppendOnly], or a file that [Follow] wrote. The model goes on from
// part to part; a part of another life of the server begins with [LifeCommand].
func Read(parts ...string) (History, error) {
	var h History
	for i, path := range parts {
		part, err := readPart(path)
		if err != nil {
			return nil, err
		}
		for k := range part {
			part[k].Part = i
		}
		if h == nil {
			h = part
		} else {
			h = append(h, part...)
		}
	}
	return h, nil
}

func readPart(path string) (History, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("history: part of a history: %w", err)
	}
	if info.IsDir() {
		return ReadAppendOnly(path)
	}
	h, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("history: %s: %w", path, err)
	}
	return h, nil
}

// AppendOnly are the settings of a redis-server whose history [ReadAppendOnly] can read.
//
// fsync is off: the server writes to the file before it answers all the same, and no scenario cuts
// the machine's power. A slow disk's fsync would stop the server for long enough to be a fault by
// itself.
func AppendOnly() []string {
	return []string{
		"--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0",
		"--aof-use-rdb-preamble", "no", "--aof-timestamp-enabled", "yes",
	}
}

const appendOnlyDir = "appendonlydir" // within the server's

// ErrRewritten is returned by ReadAppendOnly for a file whose beginning has been replaced by a
// snapshot.
var ErrRewritten = errors.New("history: the append-only file was rewritten, its history is gone")

// ReadAppendOnly reads the history of the redis-server that works in dir and was started with the
// settings of [AppendOnly], also while it runs or after it was killed: an event that is not written
// to its end is not part of it. A server that was killed and started again on its file goes on in
// it, after it has cut off such an end.
func ReadAppendOnly(dir string) (History, error) {
	dir = filepath.Join(dir, appendOnlyDir)
	manifest, err := os.ReadFile(filepath.Join(dir, "appendonly.aof.manifest"))
	if err != nil {
		return nil, fmt.Errorf("history: manifest: %w", err)
	}
	var h History
	for line := range strings.Lines(string(manifest)) {
		entry, err := manifestEntry(line)
		if err != nil {
			return nil, err
		}
		name, seq, kind := entry["file"], entry["seq"], entry["type"]
		if kind == "h" {
			continue
		}
		if kind == "b" && seq != "1" {
			return nil, ErrRewritten
		}
		part, err := readFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("history: %s: %w", name, err)
		}
		h = append(h, part...)
	}
	return h, nil
}

// manifestEntry reads "file <name> seq <n> type b|i|h", in the order in which they are to be
// loaded. Redis 8 adds more such pairs: startoffset, endoffset. They say where in the stream of
// replication the file belongs, not what of it is loaded.
func manifestEntry(line string) (map[string]string, error) {
	words := strings.Fields(line)
	entry := make(map[string]string)
	for i := 0; i+1 < len(words); i += 2 {
		entry[words[i]] = words[i+1]
	}
	if len(words)%2 != 0 || entry["file"] == "" || entry["seq"] == "" || entry["type"] == "" {
		return nil, fmt.Errorf("history: manifest: line %q", line)
	}
	return entry, nil
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
	r           *bufio.Reader
	offset      int64
	second      int64 // of the last annotation
	annotations int
	buf         []byte
	words       map[string]string
}

// event reads a command, or everything from MULTI to EXEC. A SELECT alone is an event without
// commands.
//
// A server that was killed in the middle of writing an event may leave its MULTI and what follows
// in the file, and go on behind it when it is started again. It has not done any of that. It shows
// by the time or another MULTI in an event's middle, where a server writes neither.
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
			// Everything of ours is in database 0; of another, keys of the same name would be mixed
			// up.
			if len(c) != 2 || c[1] != "0" {
				return Event{}, fmt.Errorf("history: %v: only database 0 is understood", c)
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
		if ts, ok := bytes.CutPrefix(line, []byte("#TS:")); ok {
			if p.second, err = strconv.ParseInt(string(ts), 10, 64); err != nil {
				return nil, fmt.Errorf("history: annotation %q: %w", line, err)
			}
			p.annotations++
			continue
		}
		if len(line) > 0 && line[0] == '#' {
			continue
		}
		n, err := count(line, '*')
		if err != nil || n == 0 {
			return nil, fmt.Errorf("history: %.40q is no command: %w", line, err)
		}
		c := make(Command, n)
		for i := range c {
			if c[i], err = p.bulk(); err != nil {
				return nil, err
			}
		}
		c[0] = upper(c[0]) // it stands there as the client wrote it
		return c, nil
	}
}

// upper is strings.ToUpper without a copy of what is in upper case already.
func upper(name string) string {
	for i := range len(name) {
		if name[i] >= 'a' && name[i] <= 'z' {
			return strings.ToUpper(name)
		}
	}
	return name
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
	if cap(p.buf) < n+2 {
		p.buf = make([]byte, n+2)
	}
	b := p.buf[:n+2]
	read, err := io.ReadFull(p.r, b)
	p.offset += int64(read)
	if err != nil {
		return "", err
	}
	return p.text(b[:n]), nil
}

// A history is long and says the same words over and over: keys, instances, IMEIs. Each is kept
// once; so that words that do not come again cost nothing for long, all are forgotten now and then.
const (
	wordLength = 64
	words      = 1 << 20
)

func (p *parser) text(b []byte) string {
	if len(b) > wordLength {
		return string(b)
	}
	if word, known := p.words[string(b)]; known {
		return word
	}
	if p.words == nil || len(p.words) >= words {
		p.words = make(map[string]string)
	}
	word := string(b)
	p.words[word] = word
	return word
}

// line is valid until the next one is read.
func (p *parser) line() ([]byte, error) {
	line, err := p.r.ReadSlice('\n')
	p.offset += int64(len(line))
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line, []byte("\r\n")), nil
}

// count reads "<mark><number>".
func count(line []byte, mark byte) (int, error) {
	if len(line) < 2 || line[0] != mark {
		return 0, fmt.Errorf("history: want %q, got %.40q", mark, line)
	}
	n := 0
	for _, digit := range line[1:] {
		if digit < '0' || digit > '9' || n > 1<<29 {
			return 0, fmt.Errorf("history: bad length %.40q", line)
		}
		n = 10*n + int(digit-'0')
	}
	if n > 1<<29 {
		return 0, fmt.Errorf("history: bad length %.40q", line)
	}
	return n, nil
}
