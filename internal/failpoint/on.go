//go:build failpoints && unix

package failpoint

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	folder = os.Getenv(Folder) // empty: no point ever acts

	mu     sync.Mutex       // one hit at a time looks for an order
	passed = map[Name]int{} // hits that met an order which was for a later one
)

// Hit does what was ordered for the point, if anything was.
func Hit(name Name) { hit(name) }

// HitPast is Hit at a point past the last check of ctx' deadline. The client checks that again
// before it writes, and a process that wakes up too late would notice it there. One that was
// stopped in the middle of write(2) would not. So if the hit acted, the context that it returns has
// no end; the deadlines of the connection still bound the call.
func HitPast(ctx context.Context, name Name) context.Context {
	if hit(name) {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// hit tells whether it acted.
func hit(name Name) bool {
	if folder == "" {
		return false
	}
	o, ok := take(name)
	if !ok {
		return false
	}
	switch o.act {
	case "stop":
		stop()
	case "kill":
		kill()
	case "wait":
		time.Sleep(o.wait)
	}
	put(name, ".woken", nil)
	return true
}

// order is what a file orders.
type order struct {
	act  string
	wait time.Duration
	at   int // which hit from now on, from 1
}

// parse panics at what is no order: if it were ignored, the suite would believe in a fault that
// never was.
func parse(name Name, text string) order {
	o, words, err := order{at: 1}, strings.Fields(text), error(nil)
	next := func() (word string) {
		if len(words) > 0 {
			word, words = words[0], words[1:]
		}
		return word
	}
	switch o.act = next(); o.act {
	case "stop", "kill":
	case "wait":
		o.wait, err = time.ParseDuration(next())
	default:
		err = fmt.Errorf("unknown action")
	}
	if err == nil && len(words) > 0 {
		o.at, err = strconv.Atoi(next())
	}
	if err != nil || len(words) > 0 || o.at < 1 || o.wait < 0 {
		panic(fmt.Sprintf("failpoint %s: order %q: %v", name, text, err))
	}
	return o
}

// take takes the point's order if there is one for this hit, and counts the hit.
func take(name Name) (order, bool) {
	mu.Lock()
	defer mu.Unlock()
	path := filepath.Join(folder, string(name))
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return order{}, false
	}
	check(err)
	o := parse(name, string(text))
	if passed[name]++; passed[name] < o.at {
		return order{}, false
	}
	// Not there any more: withdrawn, or taken by a process that shares the folder.
	if err := os.Rename(path, path+".claimed"); os.IsNotExist(err) {
		return order{}, false
	} else {
		check(err)
	}
	delete(passed, name)
	before, err := os.ReadFile(path + ".hits") // also of a former life
	if !os.IsNotExist(err) {
		check(err)
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(before)))
	put(name, ".hits", []byte(strconv.Itoa(n+1)))
	check(os.Rename(path+".claimed", path+".taken")) // last: it tells that the rest is there
	return o, true
}

// stop returns after a SIGCONT. It waits for that, because the kernel may give SIGSTOP to another
// thread, and this one would go on for a moment before all stand still.
func stop() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	check(syscall.Kill(os.Getpid(), syscall.SIGSTOP))
	<-continued
}

// kill never returns.
func kill() {
	check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
	select {}
}

// put writes a file that nobody reads half written.
func put(name Name, suffix string, text []byte) {
	path := filepath.Join(folder, string(name)+suffix)
	check(os.WriteFile(path+".new", text, 0o644))
	check(os.Rename(path+".new", path))
}

// check ends the process if the folder cannot be used: a suite that goes on would wait for what
// cannot come.
func check(err error) {
	if err != nil {
		panic(fmt.Sprintf("failpoint: %v", err))
	}
}
