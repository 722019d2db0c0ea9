package harness

import (
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// recordFile names the file, beside README.md, to which a run adds its evictions.
const recordFile = "ROLLCALL_RECORD"

// Run is a line of the record.
type Run struct {
	Date, Servers, Make, Commit string
	Evictions, Wrong            int
}

var recordHead = []string{"date", "servers", "make", "evictions", "wrong deletes", "commit"}

// Record adds today's run, on servers such as "Cluster", and sums up in README.md.
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
	return record(path, Run{
		Date: time.Now().UTC().Format(time.DateOnly), Servers: servers, Make: version,
		Evictions: evictions, Wrong: wrong, Commit: strings.TrimSpace(string(commit)),
	})
}

func record(path string, run Run) error {
	runs, err := Runs(path)
	if err != nil {
		return err
	}
	runs = append(runs, run)
	lines := [][]string{recordHead}
	for _, r := range runs {
		lines = append(lines, []string{
			r.Date, r.Servers, r.Make, strconv.Itoa(r.Evictions), strconv.Itoa(r.Wrong), r.Commit,
		})
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("harness: record: %w", err)
	}
	if err := errors.Join(csv.NewWriter(file).WriteAll(lines), file.Close()); err != nil {
		return fmt.Errorf("harness: record: %w", err)
	}
	report := filepath.Join(filepath.Dir(path), "README.md")
	text, err := os.ReadFile(report)
	if err != nil {
		return fmt.Errorf("harness: record: %w", err)
	}
	before, rest, begins := strings.Cut(string(text), sumsBegin)
	_, after, ends := strings.Cut(rest, sumsEnd)
	if !begins || !ends {
		return fmt.Errorf("harness: record: %s has no place for the sums", report)
	}
	return os.WriteFile(report, []byte(before+Sums(runs)+after), 0o644)
}

// Runs reads the record.
func Runs(path string) (runs []Run, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("harness: record: %w", err)
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil || len(lines) == 0 || !slices.Equal(lines[0], recordHead) {
		return nil, fmt.Errorf("harness: record %s: its head is not %v: %w", path, recordHead, err)
	}
	for _, l := range lines[1:] {
		evictions, err := strconv.Atoi(l[3])
		wrong, err2 := strconv.Atoi(l[4])
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("harness: record %s: %v: %w", path, l, err)
		}
		runs = append(runs, Run{
			Date: l[0], Servers: l[1], Make: l[2], Evictions: evictions, Wrong: wrong, Commit: l[5],
		})
	}
	return runs, nil
}

const sumsBegin, sumsEnd = "<!-- sums -->\n", "<!-- end of sums -->\n"

// Sums returns the table by servers and make, with the marks around it.
func Sums(runs []Run) string {
	type kind struct{ servers, make string }
	sums, counts, all := map[kind]Run{}, map[kind]int{}, Run{}
	for _, r := range runs {
		k := kind{r.Servers, r.Make}
		s := sums[k]
		s.Evictions += r.Evictions
		s.Wrong += r.Wrong
		sums[k] = s
		counts[k]++
		all.Evictions += r.Evictions
		all.Wrong += r.Wrong
	}
	kinds := slices.SortedFunc(maps.Keys(sums), func(a, b kind) int {
		return strings.Compare(a.servers+a.make, b.servers+b.make)
	})
	var b strings.Builder
	b.WriteString(sumsBegin + "| servers | make | runs | evictions | wrong deletes |\n|---|---|---|---|---|\n")
	for _, k := range kinds {
		s := sums[k]
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d |\n", k.servers, k.make, counts[k], s.Evictions, s.Wrong)
	}
	fmt.Fprintf(&b, "| all | | %d | %d | %d |\n%s", len(runs), all.Evictions, all.Wrong, sumsEnd)
	return b.String()
}
