package inspect

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/partition"
)

func unreported(what string) (found, error) {
	return warn("this server does not report %s, or does not let this user ask (INFO)", what)
}

const (
	pings       = 10
	slowPing    = 20 * time.Millisecond
	tooSlowPing = 300 * time.Millisecond // a third of a control call's deadline
)

func checkLatency(ctx context.Context, p *patient) (found, error) {
	at, err := p.at(ctx)
	if err != nil {
		return found{}, err
	}
	var took []time.Duration
	for range pings {
		start := time.Now()
		if err := at.Ping(ctx).Err(); err != nil {
			return found{}, err
		}
		took = append(took, time.Since(start))
	}
	median := slices.Sorted(slices.Values(took))[pings/2].Round(10 * time.Microsecond)
	switch {
	case median > tooSlowPing:
		return wrong("a PING takes %s from here, so heartbeats will be late; move Redis closer, or reduce its load", median)
	case median > slowPing:
		return warn("a PING takes %s from here; check SLOWLOG and the network", median)
	}
	return fine("a PING takes %s from here", median)
}

func checkVersion(_ context.Context, p *patient) (found, error) {
	version := p.server.Version
	major, err := strconv.Atoi(strings.Split(version, ".")[0])
	if err != nil {
		return unreported("its version")
	}
	if major < 7 {
		return wrong("Redis %s is too old: it needs 7.0 or newer", version)
	}
	return fine("%s", version)
}

func checkCluster(_ context.Context, p *patient) (found, error) {
	_, cluster := p.client.(*redis.ClusterClient)
	enabled := p.server.info["cluster_enabled"] == "1" || p.server.info["redis_mode"] == "cluster"
	switch {
	case enabled && !cluster:
		return wrong("REDIS_URL names one node of a Redis Cluster, but not as a Cluster: " +
			"use redis://host:6379, without a database or a socket's path")
	case cluster && !p.keys.OneSlot():
		return wrong("on a Redis Cluster the prefix %q needs a hash tag, such as {rollcall}:", p.keys.Prefix)
	case cluster && p.single:
		return fine("a Redis Cluster, and all keys of each partition are in one slot")
	case cluster:
		return fine("a Redis Cluster, and all keys of the fleet are in one slot")
	}
	return fine("no Cluster")
}

func checkRole(_ context.Context, p *patient) (found, error) {
	switch p.server.Role {
	case "":
		return unreported("its role")
	case "slave":
		return wrong("this is a replica: it refuses writes, and its data may be old; "+
			"name the primary in REDIS_URL (it says %s:%s)",
			p.server.info["master_host"], p.server.info["master_port"])
	}
	return fine("primary, with %s replicas", or(p.server.info["connected_slaves"], "0"))
}

func checkPolicy(_ context.Context, p *patient) (found, error) {
	switch policy := p.server.Policy; {
	case policy == "":
		return unreported("its maxmemory-policy")
	case policy == "noeviction":
		return fine("noeviction")
	case p.server.MaxMemory == 0:
		return warn("%s: without effect while maxmemory is 0; set noeviction before a limit", policy)
	default:
		return wrong("%s: under pressure Redis evicts heartbeats, and then nothing is swept; "+
			"CONFIG SET maxmemory-policy noeviction", policy)
	}
}

func checkMemory(_ context.Context, p *patient) (found, error) {
	used, limit := p.server.Memory, p.server.MaxMemory
	if p.server.info["used_memory"] == "" {
		return unreported("its memory")
	}
	if limit == 0 {
		return fine("%s used, no limit", Megabytes(used))
	}
	text := fmt.Sprintf("%s of %s used", Megabytes(used), Megabytes(limit))
	switch share := float64(used) / float64(limit); {
	case share > 0.85 && p.server.evicts():
		return wrong("%s, policy %s: Redis evicts keys for want of memory, heartbeats among them; "+
			"CONFIG SET maxmemory-policy noeviction, and give it memory", text, p.server.Policy)
	case share >= 1 || p.status.full():
		return wrong("%s: Redis refuses registrations and telemetry; give it memory", text)
	case share > 0.85:
		return warn("%s: when it is full, registrations are refused; give it memory", text)
	}
	return fine("%s", text)
}

func checkEvictedKeys(_ context.Context, p *patient) (found, error) {
	switch n := p.server.info["evicted_keys"]; n {
	case "":
		return unreported("how many keys it evicted")
	case "0":
		return fine("none")
	default:
		return warn("Redis has evicted %s keys since its start: while this grows, nothing is swept", n)
	}
}

func checkRefused(ctx context.Context, p *patient) (found, error) {
	info := p.server.info
	if info["rejected_connections"] == "" {
		return unreported("how many clients it turned away")
	}
	logins := info["acl_access_denied_auth"]
	if logins == "" { // before Redis 7.2
		at, err := p.at(ctx)
		if err != nil {
			return found{}, err
		}
		errors, err := at.InfoMap(ctx, "errorstats").Result()
		if err != nil {
			return unreported("how many logins it refused")
		}
		logins = or(strings.TrimPrefix(errors["Errorstats"]["errorstat_WRONGPASS"], "count="), "0")
	}
	cut := or(info["evicted_clients"], "0")
	if info["rejected_connections"] == "0" && logins == "0" && cut == "0" {
		return fine("none")
	}
	return warn("Redis has turned clients away since its start: %s connections, %s logins, %s cut for want of memory: "+
		"while this grows, nothing is swept", info["rejected_connections"], logins, cut)
}

func checkPersistence(ctx context.Context, p *patient) (found, error) {
	info := p.server.info
	if info["aof_enabled"] == "" {
		return unreported("how it persists")
	}
	for _, status := range []string{"aof_last_write_status", "rdb_last_bgsave_status"} {
		if s := info[status]; s != "" && s != "ok" {
			return wrong("%s is %s: check the server's log and disk", status, s)
		}
	}
	if info["aof_enabled"] == "1" {
		return fine("append-only file")
	}
	at, err := p.at(ctx)
	if err != nil {
		return found{}, err
	}
	saves, err := at.ConfigGet(ctx, "save").Result()
	if err != nil {
		return warn("no append-only file; could not check for snapshots (%v). "+
			"The registry needs neither, telemetry does", err)
	}
	if saves["save"] == "" {
		return warn("no persistence: after a restart owners restore the registry, but " +
			"telemetry and the eviction log are lost")
	}
	return fine("snapshots: a crash loses everything after the last one")
}

const (
	clockWarn  = 2 * time.Second
	clockWrong = time.Minute
)

func checkClock(ctx context.Context, p *patient) (found, error) {
	before := time.Now()
	server, err := p.now(ctx)
	if err != nil {
		return found{}, err
	}
	took := time.Since(before)
	ahead := server.Sub(before.Add(took / 2))
	which := "ahead of"
	if ahead < 0 {
		which = "behind"
	}
	switch off := ahead.Abs(); {
	case off > clockWrong+took:
		return wrong("the server's clock is %s %s this machine's; run NTP on both", Short(off), which)
	case off > clockWarn+took:
		return warn("the server's clock is %s %s this machine's; run NTP on both", Short(off), which)
	}
	return fine("it differs by less than %s from this machine's", Short(clockWarn+took))
}

// Replicas that write to another database form another fleet.
func checkDatabase(ctx context.Context, p *patient) (found, error) {
	c, ok := p.client.(*redis.Client)
	if !ok {
		return fine("a Cluster has one")
	}
	var others []string
	for name := range p.server.info {
		n, err := strconv.Atoi(strings.TrimPrefix(name, "db"))
		if !strings.HasPrefix(name, "db") || err != nil || n == c.Options().DB {
			continue
		}
		o := *c.Options()
		o.DB, o.PoolSize, o.MinIdleConns = n, 1, 0
		there := redis.NewClient(&o)
		keys := []string{p.keys.Registry(), p.keys.Lease(), p.keys.Roster(), p.keys.Witness()}
		found, err := there.Exists(ctx, keys...).Result()
		_ = there.Close()
		if err != nil {
			return warn("database %d cannot be read: %v", n, err)
		}
		if found > 0 {
			others = append(others, strconv.Itoa(n))
		}
	}
	if n := p.beside(ctx); n > 1 {
		return warn("%s is %d, and this fleet has one partition: an ingest that starts ends with that error; if "+
			"no divided fleet is here too (rollcall status --prefix '%s'): redis-cli DEL '%[1]s'",
			divided.Partitions(), n, divided.Prefix)
	}
	if len(others) > 0 {
		slices.Sort(others)
		return wrong("this is database %d, but database %s has keys of the same names: "+
			"give all replicas one REDIS_URL", c.Options().DB, strings.Join(others, ", "))
	}
	return fine("%d, and no other has keys of these names", c.Options().DB)
}

// divided is the layout of ingest in partitions.
var divided = guard.Layout{Prefix: "{rollcall}:"}

func (p *patient) beside(ctx context.Context) int {
	if p.keys.Prefix != "" || p.fleetAway {
		return 0
	}
	n, err := partition.Count(ctx, p.client, divided)
	if err != nil { // a user without that right is in no such fleet
		return 0
	}
	return n
}

func checkTypes(ctx context.Context, p *patient) (found, error) {
	damaged, err := p.damaged(ctx, !p.fleetAway)
	if err != nil {
		return found{}, err
	}
	if len(damaged) > 0 {
		d := damaged[0]
		return wrong("%s is a %s, not a %s: %s; find what wrote it, use a prefix, or delete it",
			d.Key, d.Is, d.Must, d.follows)
	}
	return fine("every key has the right type")
}
