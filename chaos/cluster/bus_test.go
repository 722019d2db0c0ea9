package cluster

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// link forwards what comes in at its address, for as long as it is let through.
type link struct {
	net.Listener
	mu    sync.Mutex
	to    string
	open  func(from string) bool // an IP address
	conns map[net.Conn]string    // both ends, with where they come from
}

// newLink forwards to an address. It ends with the test.
func newLink(w *world, to string) *link {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w, err)
	f := &link{Listener: l, to: to, open: func(string) bool { return true }, conns: map[net.Conn]string{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := f.Accept()
			if err != nil {
				return
			}
			all.Go(func() { f.forward(in) })
		}
	})
	w.Cleanup(func() {
		f.set(func(string) bool { return false })
		_ = f.Close()
		all.Wait()
	})
	return f
}

func (f *link) forward(in net.Conn) {
	defer in.Close()
	from, _, _ := net.SplitHostPort(in.RemoteAddr().String())
	f.mu.Lock()
	to := f.to
	f.mu.Unlock()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	f.mu.Lock()
	open := f.open(from)
	f.conns[in], f.conns[out] = from, from
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.conns, in)
		delete(f.conns, out)
		f.mu.Unlock()
	}()
	if !open {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
	both.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
	both.Wait()
}

// set says who is let through from now on. Connections of all others end.
func (f *link) set(open func(from string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = open
	for c, from := range f.conns {
		if !open(from) {
			_ = c.Close()
		}
	}
}

// goes to another address from now on. Present connections end.
func (f *link) goes(to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = to
	for c := range f.conns {
		_ = c.Close()
	}
}

// bus is the Cluster's bus, led through links. Each node connects from an address of its own, so
// that a link can tell the nodes apart: no firewall, no other namespace, no root is needed.
type bus struct {
	w     *world
	links []*link // to each node
	mu    sync.Mutex
	cuts  map[[2]int]bool
}

func source(node int) string { return fmt.Sprintf("127.0.1.%d", 1+node) }

// theBus is the bus, led through links from the first call on.
func (w *world) theBus() *bus {
	w.Helper()
	if w.bus != nil {
		return w.bus
	}
	w.bus = &bus{w: w, cuts: map[[2]int]bool{}}
	for i, n := range w.cluster.Nodes {
		nodes, err := w.client(n).ClusterNodes(w.Context()).Result()
		require.NoError(w, err)
		_, port, ok := strings.Cut(nodes, n.Addr()+"@")
		require.True(w, ok)
		port, _, _ = strings.Cut(port, " ")
		port, _, _ = strings.Cut(port, ",") // a host name
		l := newLink(w, "127.0.0.1:"+port)
		l.set(w.bus.opens(i))
		w.bus.links = append(w.bus.links, l)
	}
	w.bus.lead(w.cluster.Nodes...)
	w.cluster.AwaitOK()
	return w.bus
}

// lead has nodes be reached through their links, and connect from addresses of their own.
func (b *bus) lead(nodes ...*redistest.Server) {
	b.w.Helper()
	for i, n := range b.w.cluster.Nodes {
		if !slices.Contains(nodes, n) {
			continue
		}
		_, own := hostPort(b.w, b.links[i].Addr().String())
		for name, value := range map[string]string{
			"protected-mode":   "no", // or all but 127.0.0.1 is refused
			"bind-source-addr": source(i), "cluster-announce-ip": "127.0.0.1", "cluster-announce-bus-port": own,
		} {
			require.NoError(b.w, b.w.client(n).ConfigSet(b.w.Context(), name, value).Err())
		}
	}
	for _, n := range b.w.cluster.Nodes {
		harness.Eventually(b.w, "every node knows the ways", func() bool {
			known := b.w.client(n).ClusterNodes(b.w.Context()).Val()
			for _, l := range b.links {
				_, port, _ := net.SplitHostPort(l.Addr().String())
				if !strings.Contains(known, "@"+port) {
					return false
				}
			}
			return true
		})
	}
	for i, l := range b.links { // a node that came back has connected from elsewhere before
		l.set(func(string) bool { return false })
		l.set(b.opens(i))
	}
}

// opens tells who is let through to a node.
func (b *bus) opens(to int) func(from string) bool {
	return func(from string) bool {
		_, last, _ := strings.Cut(from, "127.0.1.")
		n, err := strconv.Atoi(last)
		if err != nil {
			return true // it has connected from elsewhere before
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		return !b.cuts[[2]int{n - 1, to}]
	}
}

// isolate cuts a node off from all others, both ways, until the returned function is called.
func (b *bus) isolate(n *redistest.Server) (mend func()) {
	return b.cut(n, b.w.cluster.Nodes...)
}

// cut cuts the links of a node with others, both ways.
func (b *bus) cut(n *redistest.Server, others ...*redistest.Server) (mend func()) {
	set := func(cut bool) {
		b.mu.Lock()
		for i, one := range b.w.cluster.Nodes {
			for k, other := range b.w.cluster.Nodes {
				for _, o := range others {
					if one == n && other == o {
						b.cuts[[2]int{i, k}], b.cuts[[2]int{k, i}] = cut, cut
					}
				}
			}
		}
		b.mu.Unlock()
		for i, l := range b.links {
			l.set(b.opens(i))
		}
	}
	set(true)
	return func() { set(false) }
}
