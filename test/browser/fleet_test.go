package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

// token is the administrator's, of each replica.
const token = "0123456789abcdef"

// program is cmd/ingest, built once.
var program string

func TestMain(m *testing.M) { redistest.Main(built{m}) }

// built builds the program before the tests.
type built struct{ m *testing.M }

func (b built) Run() int {
	folder, err := os.MkdirTemp("", "rollcall-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	program = filepath.Join(folder, "ingest")
	out, err := exec.Command("go", "-C", "../..", "build", "-o", program, "./cmd/ingest").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	defer func() { closeBrowser() }()
	return b.m.Run()
}

// fleet is real replicas on a Redis of their own.
type fleet struct {
	t        *testing.T
	server   *redistest.Server
	client   *redis.Client
	replicas map[string]*replica
}

type replica struct {
	*process.Process
	id, base, devices string
}

// start starts so many replicas, named ingest-1 and so on, and returns when one of them leads and
// none is held. Their times are short, so that a death is seen soon.
func start(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{t: t, server: redistest.Start(t), replicas: map[string]*replica{}}
	f.client = f.server.Client()
	for i := range n {
		f.launch("ingest-" + strconv.Itoa(i+1))
	}
	f.eventually("a replica leads and nothing is held", func() bool {
		s := f.status()
		return s.Leader != nil && s.Leader.Epoch > 0 && s.Hold == nil && len(s.Instances) == n
	})
	return f
}

func (f *fleet) launch(id string) {
	f.t.Helper()
	log := filepath.Join(f.t.TempDir(), id+".log")
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+f.server.Addr(), "INSTANCE_ID="+id,
		"INGEST_ADDR=127.0.0.1:0", "HTTP_ADDR=127.0.0.1:0", "ADMIN_TOKEN="+token, "LOG_FORMAT=json",
		"HEARTBEAT_INTERVAL=1s", "HEARTBEAT_TTL=3s", "JANITOR_INTERVAL=2s", "JANITOR_LEASE_TTL=1s")
	p, err := process.Start(cmd, process.Options{Log: log})
	require.NoError(f.t, err)
	f.t.Cleanup(func() {
		p.Kill()
		if f.t.Failed() {
			f.t.Logf("%s:\n%s", id, p.Log())
		}
	})
	r := &replica{Process: p, id: id}
	f.replicas[id] = r
	f.eventually(id+" serves", func() bool {
		r.base, r.devices = p.Said("serving HTTP", "addr"), p.Said("listening for devices", "addr")
		return r.base != "" && r.devices != ""
	})
	r.base = "http://" + r.base + "/"
}

// status is what tests need of GET /api/v1/fleet.
type status struct {
	Leader *struct {
		Instance string
		Epoch    uint64
	}
	Hold      *struct{ Reason string }
	Instances []struct {
		ID    string
		Alive bool
	}
}

// status asks any replica that answers.
func (f *fleet) status() (s status) {
	for _, r := range f.replicas {
		res, err := http.Get(r.base + "api/v1/fleet")
		if err != nil {
			continue
		}
		err = json.NewDecoder(res.Body).Decode(&s)
		_ = res.Body.Close()
		if err == nil {
			http.DefaultClient.CloseIdleConnections()
			return s
		}
	}
	return s
}

// leader returns who leads, and another.
func (f *fleet) leader() (leads, other *replica) {
	f.t.Helper()
	f.eventually("somebody leads", func() bool {
		s := f.status()
		leads = nil
		if s.Leader != nil {
			leads = f.replicas[s.Leader.Instance]
		}
		return leads != nil
	})
	for id, r := range f.replicas {
		if id != leads.id && (other == nil || id < other.id) {
			other = r
		}
	}
	return leads, other
}

// connect opens sockets of so many devices to a replica, and returns when all are registered.
func (f *fleet) connect(r *replica, n int) (imeis []string) {
	f.t.Helper()
	for i := range n {
		imei := imeiOf(r, i)
		conn, err := net.Dial("tcp", r.devices)
		require.NoError(f.t, err)
		f.t.Cleanup(func() { _ = conn.Close() })
		_, err = conn.Write(append([]byte{0, byte(len(imei))}, imei...))
		require.NoError(f.t, err)
		accepted, err := bufio.NewReader(conn).ReadByte()
		require.NoError(f.t, err)
		require.Equal(f.t, byte(1), accepted)
		imeis = append(imeis, imei)
	}
	f.eventually("devices are registered", func() bool {
		owners, err := f.client.HMGet(f.t.Context(), "connections:registry", imeis...).Result()
		require.NoError(f.t, err)
		for _, o := range owners {
			if o != r.id {
				return false
			}
		}
		return true
	})
	return imeis
}

// imeiOf is a well-formed IMEI: the last of its 15 digits is a checksum.
func imeiOf(r *replica, i int) string {
	digits := fmt.Sprintf("356307%s%07d", strings.TrimPrefix(r.id, "ingest-"), i)
	sum := 0
	for at, c := range digits {
		d := int(c - '0')
		if at%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return digits + strconv.Itoa((10-sum%10)%10)
}

// patience is how long something may take on a machine that does much else.
const patience = 2 * time.Minute

func (f *fleet) eventually(what string, is func() bool) {
	f.t.Helper()
	waittest.Until(f.t, 50*time.Millisecond, is, what)
}
