//go:build mixed

// Package mixed runs replicas of the last release beside those of this checkout, on one Redis:
// make mixed. scripts/released says which commit the release is.
package mixed

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	patience = time.Minute
	tick     = 10 * time.Millisecond
	token    = "secret-0123456789"
)

// timings under which a slow machine is not taken for a fault.
var timings = []string{"--heartbeat-interval=1s", "--heartbeat-ttl=6s", "--janitor-interval=1s",
	"--janitor-lease-ttl=6s"}

// A replica is one process of one of the two versions.
type replica struct {
	*process.Process
	t  *testing.T
	id string
}

// start runs a replica of the programs in a folder, and waits until devices can connect.
func start(t *testing.T, folder, id string, server *redistest.Server) *replica {
	t.Helper()
	cmd := exec.Command(filepath.Join(folder, "ingest"), append([]string{
		"--redis-url=redis://" + server.Addr(), "--instance-id=" + id,
		"--http-addr=127.0.0.1:0", "--ingest-addr=127.0.0.1:0", "--log-format=json",
	}, timings...)...)
	cmd.Env = append(os.Environ(), "ADMIN_TOKEN="+token)
	p, err := process.Start(cmd, process.Options{Log: filepath.Join(t.TempDir(), id)})
	require.NoError(t, err)
	r := &replica{Process: p, t: t, id: id}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Log(p.Log())
		}
	})
	r.await(func() bool { return p.Said("listening for devices", "addr") != "" }, "it listens")
	return r
}

func (r *replica) await(what func() bool, name string) {
	r.t.Helper()
	require.Eventually(r.t, what, patience, tick, "%s: %s", r.id, name)
}

// leads tells whether the replica says that it leads.
func (r *replica) leads() bool {
	resp, err := http.Get("http://" + r.Said("serving HTTP", "addr") + "/api/v1/status")
	require.NoError(r.t, err)
	defer resp.Body.Close()
	var status struct{ Janitor struct{ Leading bool } }
	require.NoError(r.t, json.NewDecoder(resp.Body).Decode(&status))
	return status.Janitor.Leading
}

func (r *replica) resign() {
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Said("serving HTTP", "addr")+"/api/v1/resign",
		nil)
	require.NoError(r.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	require.Equal(r.t, http.StatusOK, resp.StatusCode, string(body))
}

func (r *replica) devices() string { return r.Said("listening for devices", "addr") }

// calm requires that the log has no warning and no error.
func (r *replica) calm() {
	r.t.Helper()
	for line := range strings.Lines(r.Log()) {
		require.NotRegexp(r.t, `"level":"(WARN|ERROR)"`, strings.ReplaceAll(line,
			// of the release, where few files may be open
			`"level":"WARN","msg":"INGEST_MAX_CONNS is more than`, ""))
	}
}

// programs are the folders of the release's programs and of this checkout's.
func programs(t *testing.T) (older, newer string) {
	t.Helper()
	older = os.Getenv("RELEASED")
	require.NotEmpty(t, older, "RELEASED: expected what scripts/released prints; make mixed sets it")
	newer = t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", newer+"/", "./cmd/ingest", "./cmd/rollcall")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return older, newer
}

// readsTheFleet asks a version's own tool.
func readsTheFleet(t *testing.T, folder string, server *redistest.Server, leader string, instances ...string) {
	t.Helper()
	rollcall := func(args ...string) []byte {
		cmd := exec.Command(filepath.Join(folder, "rollcall"),
			append(args, "--json", "--redis-url=redis://"+server.Addr())...)
		out, err := cmd.Output()
		// "no" is an answer: this Redis keeps nothing on disk
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 3 {
			require.NoError(t, err, string(out))
		}
		return out
	}
	var status struct {
		Leader    struct{ Instance string }
		Instances []struct {
			ID    string
			Alive bool
		}
	}
	require.NoError(t, json.Unmarshal(rollcall("status"), &status))
	require.Equal(t, leader, status.Leader.Instance)
	var alive []string
	for _, i := range status.Instances {
		if i.Alive {
			alive = append(alive, i.ID)
		}
	}
	require.ElementsMatch(t, instances, alive)
	var doctor struct {
		Checks []struct{ Name, Level, Sentence string }
	}
	require.NoError(t, json.Unmarshal(rollcall("doctor"), &doctor))
	require.NotEmpty(t, doctor.Checks)
	for _, c := range doctor.Checks {
		require.NotEqual(t, "wrong", c.Level, "%s: %s", c.Name, c.Sentence)
	}
}

func TestTwoVersionsAreOneFleet(t *testing.T) {
	older, newer := programs(t)
	server := redistest.Start(t)
	rdb, keys := server.Client(), registry.Layout{}
	owner := func(imei string) string { return rdb.HGet(t.Context(), keys.Registry(), imei).Val() }
	await := func(what func() bool, name string) {
		t.Helper()
		require.Eventually(t, what, patience, tick, name)
	}

	// Two of each: a death is then no mass failure.
	old1 := start(t, older, "old-1", server)
	old1.await(old1.leads, "it leads")
	old2, new1, new2 := start(t, older, "old-2", server), start(t, newer, "new-1", server),
		start(t, newer, "new-2", server)
	all := []*replica{old1, old2, new1, new2}
	readsTheFleet(t, older, server, "old-1", "old-1", "old-2", "new-1", "new-2")
	readsTheFleet(t, newer, server, "old-1", "old-1", "old-2", "new-1", "new-2")

	// Devices 0 to 9 are at each, and move from one version to the other, and back.
	fleet := sim.NewFleet(40, 350_000_000_000_000, patience)
	defer fleet.Close()
	put := func(shift int) {
		for i, d := range fleet {
			require.NoError(t, d.Move(t.Context(), all[(i+shift)%4].devices()))
			_, err := d.Report(t.Context(), 2)
			require.NoError(t, err)
			d.DropStale()
		}
	}
	where := func(of ...*replica) {
		t.Helper()
		ids := map[string]string{}
		for _, r := range of {
			ids[r.devices()] = r.id
		}
		for imei, addr := range fleet.Where() {
			if ids[addr] != "" {
				await(func() bool { return owner(imei) == ids[addr] }, imei+" is routable")
			}
		}
	}
	put(0)
	where(all...)
	put(2) // from each version to the other
	where(all...)
	put(0)
	where(all...)

	// lead has one of a version lead, and gives the lease back and forth until it does.
	lead := func(version string) *replica {
		t.Helper()
		for {
			var leader *replica
			await(func() bool {
				for _, r := range all {
					if r.Runs() && r.leads() {
						leader = r
						return true
					}
				}
				return false
			}, "somebody leads")
			if strings.HasPrefix(leader.id, version) {
				return leader
			}
			leader.resign()
		}
	}
	evicted := func(by, dead *replica) {
		t.Helper()
		await(func() bool {
			for _, name := range rdb.HVals(t.Context(), keys.Registry()).Val() {
				if name == dead.id {
					return false
				}
			}
			return true
		}, "what "+dead.id+" held is swept by "+by.id)
		require.True(t, by.leads(), "the same leads")
	}

	leader := lead("new")
	readsTheFleet(t, older, server, leader.id, "old-1", "old-2", "new-1", "new-2")
	readsTheFleet(t, newer, server, leader.id, "old-1", "old-2", "new-1", "new-2")
	old2.Kill()
	evicted(leader, old2)
	where(old1, new1, new2)

	leader = lead("old")
	new2.Kill()
	evicted(leader, new2)
	where(old1, new1)
	require.EqualValues(t, 20, rdb.HLen(t.Context(), keys.Registry()).Val(), "nobody who lives was swept")
	readsTheFleet(t, older, server, "old-1", "old-1", "new-1")
	readsTheFleet(t, newer, server, "old-1", "old-1", "new-1")

	for _, r := range []*replica{old1, new1} {
		require.NoError(t, r.Signal(syscall.SIGTERM))
		require.Zero(t, r.ExitCode())
	}
	for _, r := range all {
		r.calm()
	}
}
