package inspect

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
)

func unreported(what string) []Finding {
	return quietly(warning("Allow INFO.", "This server does not report %s, or does not let this user ask (INFO)", what))
}

func awayServers(p *patient) (all []Finding) {
	if len(p.s.Unread) > 0 {
		return nil
	}
	for _, text := range p.fleet.Away(p.ctx) {
		all = append(all, wrong("Start it, or promote a replica of it.", "%s", text)...)
	}
	return all
}

const (
	pings       = 10
	slowPing    = 20 * time.Millisecond
	tooSlowPing = 300 * time.Millisecond // a third of a control call's deadline
)

func latency(p *patient) []Finding {
	var took []time.Duration
	for range pings {
		start := time.Now()
		if err := p.server.at.Ping(p.ctx).Err(); err != nil && !answered(err) {
			return failed(err)
		}
		took = append(took, time.Since(start))
	}
	median := slices.Sorted(slices.Values(took))[pings/2].Round(10 * time.Microsecond)
	const text = "A PING takes %s from here"
	switch {
	case median > tooSlowPing:
		return wrong("Move Redis closer, or reduce its load.", text+", so heartbeats will be late", median)
	case median > slowPing:
		return warning("Look at SLOWLOG, and at the network.", text, median)
	}
	return fine(text, median)
}

// needed are commands without which nothing works, and that managed services or rename-command take
// away: an error of ACL or COMMAND proves nothing.
var needed = []string{"evalsha", "evalsha_ro", "eval_ro", "hscan", "hset", "hdel", "xadd", "smismember", "time"}

func unknownCommands(p *patient) []Finding {
	pipe := p.server.at.Pipeline()
	asked := make([]*redis.Cmd, len(needed))
	for i, name := range needed {
		asked[i] = pipe.Do(p.ctx, name) // without arguments: refused, whatever else
	}
	_, _ = pipe.Exec(p.ctx)
	var unknown []string
	for i, c := range asked {
		if redis.HasErrorPrefix(c.Err(), "unknown command") {
			unknown = append(unknown, strings.ToUpper(needed[i]))
		}
	}
	if len(unknown) > 0 {
		return wrong("Undo the renaming (rename-command), or take a service that offers them.",
			"This Redis does not know %s: nothing can be registered or swept", strings.Join(unknown, ", "))
	}
	return fine("all that are needed are known")
}

func version(p *patient) []Finding {
	v := p.server.Version
	major, err := strconv.Atoi(strings.Split(v, ".")[0])
	if err != nil {
		return unreported("its version")
	}
	if major < 7 {
		return wrong("Upgrade it to 7.0 or newer.", "Redis %s is too old", v)
	}
	return fine("%s", v)
}

func cluster(p *patient) []Finding {
	_, is := p.client.(*redis.ClusterClient)
	enabled := p.server.info["cluster_enabled"] == "1" || p.server.info["redis_mode"] == "cluster"
	switch {
	case enabled && !is:
		return wrong("Use redis://host:6379, without a database or a socket's path.",
			"REDIS_URL names one node of a Redis Cluster, but not as a Cluster")
	case is && !p.keys.OneSlot():
		return wrong("Take one such as {rollcall}:.", "On a Redis Cluster the prefix %q needs a hash tag", p.keys.Prefix)
	case is:
		return fine("a Redis Cluster, and all keys of a partition are in one slot")
	}
	return fine("no Cluster")
}

func role(p *patient) []Finding {
	switch p.server.Role {
	case "":
		return unreported("its role")
	case "slave":
		return wrong("Name the primary in REDIS_URL.", "This Redis is a replica: it refuses writes, and its data may be old; "+
			"its primary is %s:%s", p.server.info["master_host"], p.server.info["master_port"])
	}
	return fine("primary, with %s replicas", or(p.server.info["connected_slaves"], "0"))
}

const setPolicy = "redis-cli CONFIG SET maxmemory-policy noeviction, and in its configuration; of a managed service, " +
	"in its parameter group."

func policy(p *patient) []Finding {
	switch policy := p.server.Policy; {
	case policy == "":
		return unreported("its maxmemory-policy")
	case policy == "noeviction":
		return fine("noeviction")
	case p.server.MaxMemory == 0:
		return quietly(warning(setPolicy, "The maxmemory-policy %s has no effect while maxmemory is 0", policy))
	default:
		return wrong(setPolicy, "The maxmemory-policy is %s: under pressure Redis evicts heartbeats, and then nothing is swept",
			policy)
	}
}

func memory(p *patient) []Finding {
	used, limit := p.server.Memory, p.server.MaxMemory
	if p.server.Version != "" && used == 0 {
		return unreported("its memory")
	}
	if limit == 0 {
		return fine("%s used, no limit", Megabytes(used))
	}
	text := fmt.Sprintf("%s of %s used", Megabytes(used), Megabytes(limit))
	switch share := float64(used) / float64(limit); {
	case share > 0.85 && p.server.evicts():
		return wrong("Give it memory. "+setPolicy,
			"%s, policy %s: Redis evicts keys for want of memory, heartbeats among them", text, p.server.Policy)
	case share >= 1 || p.s.isFull(p.server):
		and := ""
		if !p.s.Heard {
			and = ", and so are ticks, so nothing is swept"
		}
		full := wrong("Give it memory, or trim telemetry.",
			"Redis is full (%s): registrations and telemetry are refused%s", text, and)
		full[0].stops = !p.s.Heard
		return full
	case share > 0.85:
		return quietly(warning("Give it memory.", "%s: when it is full, registrations are refused", text))
	}
	return fine("%s", text)
}

func clients(p *patient) []Finding {
	n := p.server.Clients
	most, err := strconv.ParseInt(p.server.info["maxclients"], 10, 64)
	const do = "redis-cli CONFIG SET maxclients 20000; redis-cli CLIENT LIST shows who leaks connections."
	switch {
	case err != nil:
		return unreported("how many clients it takes")
	case n >= most:
		return wrong(do, "Redis has as many clients as it takes (maxclients %d): "+
			"further ones are refused, replicas among them", most)
	case 10*n >= 9*most:
		return warning(do, "Redis has %d clients, and takes no more than %d (maxclients)", n, most)
	}
	return fine("%d of %d", n, most)
}

func evictedKeys(p *patient) []Finding {
	switch n := p.server.info["evicted_keys"]; n {
	case "":
		return unreported("how many keys it evicted")
	case "0":
		return fine("none")
	default:
		return warning("Give it memory, or set noeviction.",
			"Redis has evicted %s keys since its start: while this grows, nothing is swept", n)
	}
}

func turnedAway(p *patient) []Finding {
	info := p.server.info
	if info["rejected_connections"] == "" {
		return unreported("how many clients it turned away")
	}
	logins := info["acl_access_denied_auth"]
	if logins == "" { // before Redis 7.2
		errors, err := p.server.at.InfoMap(p.ctx, "errorstats").Result()
		if err != nil {
			return unreported("how many logins it refused")
		}
		logins = or(strings.TrimPrefix(errors["Errorstats"]["errorstat_WRONGPASS"], "count="), "0")
	}
	cut := or(info["evicted_clients"], "0")
	if info["rejected_connections"] == "0" && logins == "0" && cut == "0" {
		return fine("none")
	}
	return warning("Ask again: what grows is the cause. redis-cli ACL LOG names who is refused.",
		"Redis has turned clients away since its start: %s connections, %s logins, %s cut for want of memory; "+
			"while this grows, who dies is doubted", info["rejected_connections"], logins, cut)
}

func persistence(p *patient) []Finding {
	info := p.server.info
	if info["aof_enabled"] == "" {
		return unreported("how it persists")
	}
	for _, status := range []string{"aof_last_write_status", "rdb_last_bgsave_status"} {
		if s := info[status]; s != "" && s != "ok" {
			return wrong("Look at the server's log and disk.", "%s is %s", status, s)
		}
	}
	if info["aof_enabled"] == "1" {
		return fine("append-only file")
	}
	saves, err := p.server.at.ConfigGet(p.ctx, "save").Result()
	if err != nil {
		return fine("no append-only file; this user may not ask for snapshots (CONFIG GET)")
	}
	if saves["save"] == "" {
		return warning("Set appendonly or save, if telemetry or the log is worth it.", "There is no persistence: after a "+
			"restart owners restore the registry, but telemetry and the eviction log are lost")
	}
	return fine("snapshots: a crash loses everything after the last one")
}

const (
	clockWarn  = 2 * time.Second
	clockWrong = time.Minute
)

func clock(p *patient) []Finding {
	before := time.Now()
	server, err := p.Reader.now(p.ctx)
	if err != nil {
		return failed(err)
	}
	took := time.Since(before)
	ahead := server.Sub(before.Add(took / 2))
	which := "ahead of"
	if ahead < 0 {
		which = "behind"
	}
	const text = "The clock of Redis is %s %s this machine's"
	switch off := ahead.Abs(); {
	case off > clockWrong+took:
		return wrong("Run NTP on both.", text, Short(off), which)
	case off > clockWarn+took:
		return warning("Run NTP on both.", text, Short(off), which)
	}
	return fine("it differs by less than %s from this machine's", Short(clockWarn+took))
}

// Replicas that write to another database form another fleet.
func database(p *patient) []Finding {
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
		found, err := there.Exists(p.ctx, p.keys.Registry(), p.keys.Lease(), p.keys.Roster(), p.keys.Witness()).Result()
		_ = there.Close()
		if err != nil {
			return failed(err)
		}
		if found > 0 {
			others = append(others, strconv.Itoa(n))
		}
	}
	if n := p.beside(p.ctx); n > 1 {
		return warning(fmt.Sprintf("If no divided fleet is here too (rollcall status --prefix '%s'): redis-cli DEL '%s'.",
			dividedKeys.Prefix, dividedKeys.Partitions()),
			"%s is %d, and this fleet has one partition: an ingest that starts ends with that error", dividedKeys.Partitions(), n)
	}
	if len(others) > 0 {
		slices.Sort(others)
		return wrong("Give all replicas one REDIS_URL.", "This is database %d, but database %s has keys of the same names",
			c.Options().DB, strings.Join(others, ", "))
	}
	return fine("%d, and no other has keys of these names", c.Options().DB)
}

// dividedKeys is the layout of ingest in partitions.
var dividedKeys = guard.Layout{Prefix: "{rollcall}:"}

func (p *patient) beside(ctx context.Context) int {
	if p.keys.Prefix != "" {
		return 0
	}
	n, err := partition.Count(ctx, p.client, dividedKeys)
	if err != nil { // a user without that right is in no such fleet
		return 0
	}
	return n
}

func otherFleets(p *patient) []Finding {
	if !p.s.noFleet() {
		return nil
	}
	others := p.fleet.otherFleets(p.ctx)
	if len(others) == 0 {
		return fine("there is none yet")
	}
	say := warning
	if p.fleet.keys.Prefix == "" { // it was forgotten
		say = wrong
	}
	return say("Look at --prefix, which is CLEANUP_PREFIX of cleanup, and AVAILABILITY_PREFIX of availability.",
		"There is no fleet under the prefix %q; there is one under %s", p.fleet.keys.Prefix, strings.Join(others, ", "))
}

// ofPartitionKeys matches the prefix of one partition.
var ofPartitionKeys = regexp.MustCompile(`^\{(.*):\d+:\d+:\d+\}:$`)

// lookFor bounds the keys that are looked through for fleets of unknown prefixes.
const lookFor = 100_000

// Elsewhere returns, in quotes, the prefixes of this Redis' fleets if there is none under this one.
func (r *Reader) Elsewhere(ctx context.Context) []string {
	if s, err := r.Status(ctx); err != nil || !s.noFleet() {
		return nil
	}
	return r.otherFleets(ctx)
}

// otherFleets looks at some of the keys.
func (r *Reader) otherFleets(ctx context.Context) []string {
	met := map[string]bool{}
	witness := guard.Layout{}.Witness()
	at, err := r.at(ctx)
	for cursor, looked := uint64(0), 0; err == nil && looked < lookFor; looked += pageSize {
		var page []string
		page, cursor, err = at.Scan(ctx, cursor, "*"+witness, pageSize).Result()
		for _, key := range page {
			prefix := ofPartitionKeys.ReplaceAllString(strings.TrimSuffix(key, witness), "{$1}:")
			met[strconv.Quote(prefix)] = true
		}
		if cursor == 0 {
			break
		}
	}
	delete(met, strconv.Quote(r.keys.Prefix))
	return slices.Sorted(maps.Keys(met))
}

// largest is the most entries of a partition whose slot still moves within a moment.
const largest = 100_000

func divided(p *patient) []Finding {
	switch of := p.s.Partitions; {
	case of == nil:
		return nil
	case of.Most > largest:
		return warning("Use more partitions at the next opportunity (REGISTRY_PARTITIONS).",
			"Partition %d has %d entries: with more than %d, moving its slot blocks the server for long", of.Largest,
			of.Most, largest)
	default:
		return fine("%d, as %s says; the largest has %s", of.Count, p.fleet.keys.Partitions(),
			one(of.Most, "entry", "entries"))
	}
}

func uneven(p *patient) []Finding {
	if _, ok := p.client.(*redis.ClusterClient); !ok || p.s.Partitions == nil {
		return nil
	}
	count := map[string]int{}
	masters, err := p.fleet.nodes(p.ctx, false)
	if err != nil {
		return failed(err)
	}
	for addr := range masters {
		count[addr] = 0
	}
	for _, server := range p.s.servers {
		count[addressOf(server.at)] = len(server.of)
	}
	for _, u := range p.s.Unread {
		count[u.Server] = len(u.Partitions)
	}
	share := 1 + (p.s.Partitions.Count+len(count)-1)/len(count)
	var many, all []string
	for _, addr := range slices.Sorted(maps.Keys(count)) {
		all = append(all, fmt.Sprint(count[addr]))
		if count[addr] > share {
			many = append(many, fmt.Sprintf("%s has %d of %d", addr, count[addr], p.s.Partitions.Count))
		}
	}
	if len(many) > 0 {
		return warning("Move slots so that each master has an equal range.",
			"Partitions are spread unevenly over %d masters: %s", len(count), few(many))
	}
	return fine("partitions are spread evenly: %s on %d masters", strings.Join(all, ", "), len(count))
}
