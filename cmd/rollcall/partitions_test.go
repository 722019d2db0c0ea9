package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

const (
	partitions = 4
	device     = "356307042441013"
)

// divided4 is a fleet of replicas in this process, with four partitions on a Redis Cluster.
type divided4 struct {
	*world
	layout guard.Layout
	stop   map[string]func()
}

func newDivided(t *testing.T, ids ...string) *divided4 {
	t.Helper()
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	layout := guard.Layout{Prefix: "{rollcall}:"}
	d := &divided4{&world{
		t: t, client: c.Client(), cluster: c, keys: layout, partitions: partitions, interval: time.Second,
		environ: []string{"REDIS_URL=redis://" + c.Nodes[2].Addr()},
	}, layout, map[string]func(){}}
	for _, id := range ids {
		r := d.replica(id)
		d.stop[id] = r.stop
		for i := range 8 {
			d.holds(r, d.device(id, i))
		}
	}
	d.keys = guard.Layout{} // the tool finds the prefix
	return d
}

// device is the i-th device of a replica.
func (*divided4) device(id string, i int) string {
	return fmt.Sprintf("35%012d%d", id[0], i)
}

// part names the keys of a device's partition.
func (d *divided4) part(imei string) guard.Layout {
	return d.layout.Partition(guard.PartitionOf(imei, partitions), partitions)
}

func (d *divided4) status() inspect.Status {
	d.t.Helper()
	return ask[inspect.Status](d.world, "status")
}

func TestAFleetOfSeveralPartitionsIsShownAsOne(t *testing.T) {
	t.Parallel()
	d := newDivided(t, "one", "two")
	d.tells(`
		0 wait --leader ~ each of 4 partitions has a leader
		0 wait --converged ~ each of 16 entries names a living owner, in each of 4 partitions
		`)

	var checks string
	var s inspect.Status
	until(t, "nothing is wrong, while partitions are taken over", func() bool {
		code, stdout, _ := d.run("doctor", "--all")
		checks, s = stdout, d.status()
		return code == cli.ExitOK
	})
	led := 0
	for _, l := range s.Partitions.Leaders {
		led += len(l.Partitions)
	}
	require.Equal(t, partitions, led)
	for _, says := range []string{"4, as {rollcall}:partitions says", "partitions are spread evenly: ", "the largest has "} {
		require.Contains(t, checks, says)
	}
	require.EqualValues(t, 16, s.Entries)
	require.Equal(t, partitions, s.Partitions.Count)
	require.Len(t, s.Instances, 2)
	for _, in := range s.Instances {
		require.True(t, in.Alive)
		require.EqualValues(t, 8, in.Devices, in.ID)
		require.Empty(t, in.Differs)
	}
	d.tells(`
		0 status ~ ^partitions +4, the largest is
		0 status ~ leads
		0 find $DEVICE ~ ^two holds $DEVICE
		0 why $DEVICE ~ ^kept: its owner two beat
		0 verify ~ ^16 entries: of dead owners 0, not in their owner's index 0;
		3 restore --last ~ nothing to restore
		0 log ~ (\(leads\)(.*\n)*.*){4}
		0 pause test --who ann
		0 status ~ paused by ann \(test\)
		`, "$DEVICE", d.device("two", 3))
	require.Equal(t, "paused", d.status().Hold.Reason)
	d.tells(`0 resume`)
	require.Nil(t, d.status().Hold)
}

func TestWhereAMasterIsGoneTheRestIsToldMemberByMember(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]func(guard.Layout) string{
		"one of the partitions'": func(l guard.Layout) string { return l.Partition(1, partitions).Witness() },
		"the fleet's own":        guard.Layout.Partitions,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDivided(t, "one", "two")
			d.tells(`0 wait --leader`)
			gone := d.world.cluster.Owner(key(d.layout))
			var lost []int
			for k := range partitions {
				if d.world.cluster.Owner(d.layout.Partition(k, partitions).Witness()) == gone {
					lost = append(lost, k)
				}
			}
			require.NotEmpty(t, lost)
			i := slices.IndexFunc(d.world.cluster.Nodes, func(n *redistest.Server) bool { return n != gone })
			d.environ = []string{"REDIS_URL=redis://" + d.world.cluster.Nodes[i].Addr()}
			gone.Kill()

			s := d.status()
			require.Len(t, s.Unread, 1)
			require.Equal(t, gone.Addr(), s.Unread[0].Server)
			require.Equal(t, lost, s.Unread[0].Partitions)
			require.Equal(t, key(d.layout) == d.layout.Partitions(), s.Unread[0].Fleet)
			require.Equal(t, lost, s.Partitions.Unread)
			require.Equal(t, partitions, s.Partitions.Count)
			require.Len(t, s.Instances, 2)
			for _, in := range s.Instances {
				require.Positive(t, in.Devices, "those that can be read")
			}
			require.Equal(t, "server:"+gone.Addr(), s.Findings()[0].Name)
			where := "Redis at " + gone.Addr() + " does not answer"
			d.tells(`
				0 status ~ ^wrong +server +$WHERE
				3 doctor ~ ^wrong +server +$WHERE
				1 log ~ \(leads\)
				1 verify ~ of dead owners
				3 wait --leader --timeout 1s ~ $WHERE
				3 wait --converged --timeout 1s ~ ; of the rest:
				`, "$WHERE", where)
			for i := range 8 {
				imei := d.device("one", i)
				part := guard.PartitionOf(imei, partitions)
				script := `
					0 find $DEVICE ~ one holds $DEVICE
					0 why $DEVICE ~ kept: its owner one beat(.*\n)*not read: $WHERE`
				if slices.Contains(lost, part) {
					script = `
						1 find $DEVICE ~ $DEVICE is of partition $PART, which cannot be read: $WHERE
						1 why $DEVICE ~ $DEVICE is of partition $PART, which cannot be read: $WHERE`
				}
				d.tells(script, "$DEVICE", imei, "$PART", strconv.Itoa(part), "$WHERE", where)
			}
			d.requireFollowed(where)
		})
	}
}

// requireFollowed follows the log until it has shown what there is, and has complained.
func (d *divided4) requireFollowed(complaint string) {
	d.t.Helper()
	ctx, stop := context.WithCancel(d.t.Context())
	var out, complaints process.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- rollcall().Execute(ctx, []string{"log", "--follow"}, d.environ, &out, &complaints)
	}()
	until(d.t, "the log is followed", func() bool {
		return strings.Contains(out.String(), "(leads)") && strings.Contains(complaints.String(), complaint)
	})
	stop()
	require.Equal(d.t, cli.ExitOK, <-ended)
}

func TestWhatIsWrongInOnePartitionIsToldWithItsNumber(t *testing.T) {
	t.Parallel()
	d := newDivided(t, "one")
	d.tells(`0 wait --leader`)
	ctx := t.Context()
	// A device of a dead owner: found and told in its partition, by the record of its eviction too.
	key := d.part(device)
	d.redis("HSET", key.Registry(), device, "gone")
	d.tells(`
		0 wait --gone gone ~ nothing is left of gone
		0 why $DEVICE --json ~ "verdict": "evicted"
		0 why $DEVICE --json ~ "partition": $PART
		0 log --owner gone --json ~ $DEVICE
		`, "$DEVICE", device, "$PART", strconv.Itoa(guard.PartitionOf(device, partitions)))

	two := func(s inspect.Status) inspect.Instance {
		i := slices.IndexFunc(s.Instances, func(in inspect.Instance) bool { return in.ID == "two" })
		require.GreaterOrEqual(t, i, 0)
		return s.Instances[i]
	}
	d.stop["one"]()
	d.tells(`3 doctor ~ Partitions 0-3: No replica has a heartbeat, so nobody leads`)
	// One that beats in all partitions but one.
	for k := range partitions {
		l := d.layout.Partition(k, partitions)
		d.redis("SADD", l.Roster(), "two")
		if k != 2 {
			d.redis("SET", l.Heartbeat("two"), "1/x", "EX", 3600)
		}
	}
	s := d.status()
	require.False(t, two(s).Alive)
	require.Equal(t, []int{2}, two(s).SilentIn)
	d.tells(`
		0 status ~ no heartbeat in partition 2
		3 doctor ~ Silent in some partitions: two \(no heartbeat in partition 2\)
		`)
	var names []string
	for _, p := range s.Findings() {
		names = append(names, p.Name)
	}
	require.Subset(t, names, []string{"leader", "heartbeats:partly"})

	// A Watch, which reads again and again, says the same.
	w := inspect.New(d.client, d.layout).Watch()
	again, err := w.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{2}, two(again).SilentIn)
	require.NotEmpty(t, w.Timeline())
	d.redis("SET", d.layout.Partition(2, partitions).Heartbeat("two"), "1/x", "EX", 3600)
	again, err = w.Status(ctx)
	require.NoError(t, err)
	require.True(t, two(again).Alive)
}

func TestEachLeaderThatIsNamedSweepsItsPartitions(t *testing.T) {
	t.Parallel()
	const lost = -2 // the connection is lost as it sweeps
	answer := func(status string, evicted int) string {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
			if status == "" {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprint(w, status)
		})
		mux.HandleFunc("POST /api/v1/sweep", func(w http.ResponseWriter, _ *http.Request) {
			if evicted == lost {
				panic(http.ErrAbortHandler)
			}
			if evicted < 0 {
				w.WriteHeader(http.StatusConflict)
				fmt.Fprint(w, `{"error": "it does not lead"}`)
				return
			}
			fmt.Fprintf(w, `{"reports": [{"sweep": "owners", "outcome": "done", "evicted": %d}]}`, evicted)
		})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		return s.URL
	}
	replica := func(divided bool, evicted int) string {
		if divided {
			return answer(`{"partitions": {"count": 4}}`, evicted)
		}
		return answer(`{}`, evicted)
	}
	w := &world{t: t, environ: []string{"ADMIN_TOKEN=0123456789abcdef"}}
	away := "http://127.0.0.1:1"
	for name, c := range map[string]struct {
		urls []string
		code int
		says string
	}{
		"each leader":                 {[]string{replica(true, 3), replica(true, -1), replica(true, 4)}, 0, `"evicted": 7`},
		"not all partitions":          {[]string{replica(true, 3), away}, 1, `"evicted": 3`},
		"nobody leads":                {[]string{replica(true, -1)}, 1, "it does not lead"},
		"the one leader":              {[]string{away, replica(false, 3), replica(false, 4)}, 0, `"evicted": 3`},
		"one is cut off as it sweeps": {[]string{replica(true, 3), replica(true, lost)}, 1, `"evicted": 3`},
		"one that does not say more":  {[]string{answer("", 3), replica(true, 4)}, 0, `"evicted": 7`},
		"nor whether it is alone":     {[]string{answer("", 3), replica(false, -1)}, 0, `"evicted": 3`},
	} {
		code, stdout, stderr := w.runPlainly("sweep", "--json", "--http", strings.Join(c.urls, ","))
		require.Equal(t, c.code, code, "%s: %s%s", name, stdout, stderr)
		require.Contains(t, stdout+stderr, c.says, name)
	}
}

func TestAPauseByANodeThatStandsStillIsAnError(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	w := &world{t: t, environ: []string{"REDIS_URL=redis://" + c.Nodes[0].Addr()}}
	c.Nodes[0].Stop()
	code, _, stderr := w.runPlainly("pause", "--for", "1h", "drill")
	c.Nodes[0].Cont()
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, stderr, "whether it is a node of a Cluster")
	require.Zero(t, c.Nodes[0].Client().DBSize(t.Context()).Val())
}
