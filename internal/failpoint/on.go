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
	folder = os.Getenv(Folder) // empty: no point acts

	mu     sync.Mutex       // one hit at a time looks for an order
	passed = map[Name]int{} // hits that met an order for a later one
)

// Hit carries out the point's order, if there is one.
func Hit(name Name) { hit(name) }

// HitPast is Hit past the last check of ctx' deadline. The client checks it again before it writes,
// and would notice that the process woke up too late; a process stopped in the middle of write(2)
// would not. So if the hit acted, the returned context has no end; the connection's deadlines still
// bound the call.
func HitPast(ctx context.Context, name Name) context.Context {
	if hit(name) {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

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

type order struct {
	act  string
	wait time.Duration
	at   int
}

// parse panics on an invalid order: if it were ignored, the suite would believe in a fault that
// never happened.
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
	// Withdrawn, or taken by a process that shares the folder.
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
	check(os.Rename(path+".claimed", path+".taken")) // last: it shows that the rest is done
	return o, true
}

// stop returns after a SIGCONT. It waits for that because the kernel may deliver SIGSTOP to another
// thread, and this one would continue for a moment.
func stop() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	check(syscall.Kill(os.Getpid(), syscall.SIGSTOP))
	<-continued
}

func kill() {
	check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
	select {}
}

// put keeps readers from half a file.
func put(name Name, suffix string, text []byte) {
	path := filepath.Join(folder, string(name)+suffix)
	check(os.WriteFile(path+".new", text, 0o644))
	check(os.Rename(path+".new", path))
}

// check ends the process if the folder is unusable; otherwise the suite would wait in vain.
func check(err error) {
	if err != nil {
		panic(fmt.Sprintf("failpoint: %v", err))
	}
}
