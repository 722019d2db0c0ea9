package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/internal/guard"
)

// Values of DEVICE_AUTHORITY.
const (
	everybody  = "everybody"
	allowedSet = "set"
)

type settings struct {
	program.Base
	program.Fleet

	ingestAddr         string
	ingestMaxConns     int
	ingestFirstFrame   time.Duration
	maxConnsGiven      bool // not the default
	ingestTLSAddr      string
	ingestTLSCert      string
	ingestTLSKey       string
	ingestTLSClientCA  string
	ingestProxyAddr    string
	ingestProxyTrusted []netip.Prefix
	ingestProxyTLS     bool
	deviceAuthority    string
	ingestTLSExpired   string

	reverseIndex     bool
	partitions       int // 0: auto
	telemetryStreams int // 0: auto
	telemetryMaxLen  int64
}

func (s *settings) devices() bool {
	return s.ingestAddr != cli.Off || s.ingestTLSAddr != cli.Off || s.ingestProxyAddr != cli.Off
}

// prefixes are reserved: a variable with one that is not a setting was mistyped. REDIS_, HTTP_,
// LOG_ and the like belong to everybody.
var prefixes = []string{"JANITOR_", "HEARTBEAT_", "INGEST_", "DEVICE_AUTH", "TELEMETRY_",
	"REGISTRY_REVERSE", "REGISTRY_PART"}

// table returns the rows in the order of -h.
func (s *settings) table() []cli.Setting {
	fleet := s.Fleet.Table("JANITOR", program.Defaults{
		Interval: "30s", TTL: "90s", Every: "60s",
		Passes: "How long dead entries that no index has outlive their owner, unless a scan [is put " +
			"off](timings.md#when-a-full-scan-runs). Others are removed within seconds, whatever it is.",
	})
	fleet = slices.DeleteFunc(fleet, func(row cli.Setting) bool { return row.Name == "JANITOR_PREFIX" })
	return slices.Concat(s.Base.Table(), []cli.Setting{
		{Name: "INGEST_ADDR", Default: ":5027", Value: cli.AddressOrOff(&s.ingestAddr),
			Meaning: "Where devices connect. `off`: not in plain; with INGEST_TLS_ADDR and " +
				"INGEST_PROXY_ADDR off too: no device sockets, only the janitor.",
			Consequence: "[The last one that names an IMEI](devices.md#who-is-a-device) is that device, and " +
				"gets its commands."},
		{Name: "INGEST_MAX_CONNS", Default: "100000",
			Value: cli.Number(&s.ingestMaxConns, 1, 10_000_000),
			Meaning: "Most sockets of devices at once, beside up to a quarter as many without an IMEI: " +
				"[who makes room](devices.md#who-goes-when-there-is-no-room).",
			Consequence: "Lowered to what the limit of open files (`ulimit -Hn`) less 256 allows, with a log line."},
		{Name: "INGEST_FIRST_FRAME", Default: "1m",
			Value:       cli.Duration(&s.ingestFirstFrame, time.Second, time.Hour),
			Meaning:     "How long a device may take for its first frame once it was accepted.",
			Consequence: "Afterwards it may be silent for 65 minutes."},
		{Name: "INGEST_TLS_ADDR", Default: cli.Off, Value: cli.AddressOrOff(&s.ingestTLSAddr),
			Meaning:     "Where devices connect by TLS, 1.2 or newer. `off`: nowhere.",
			Consequence: "Devices prove nothing by it, unless INGEST_TLS_CLIENT_CA is set."},
		{Name: "INGEST_TLS_CERT", Value: cli.Text(&s.ingestTLSCert),
			Meaning:     "File of the certificate and its intermediates, in PEM.",
			Consequence: "Read again when it changes. Open sockets keep what they began with."},
		{Name: "INGEST_TLS_KEY", Value: cli.Text(&s.ingestTLSKey),
			Meaning: "File of its key, in PEM."},
		{Name: "INGEST_TLS_EXPIRED", Default: "refuse", Value: cli.OneOf(&s.ingestTLSExpired, "refuse", "accept"),
			Meaning:     "A certificate that has expired: `refuse`: the former one stays. `accept`: it is used.",
			Consequence: "Devices that check it do not connect. A finding warns 14 days before."},
		{Name: "INGEST_TLS_CLIENT_CA", Value: cli.Text(&s.ingestTLSClientCA),
			Meaning: "File of the authorities, in PEM, that vouch for devices: by TLS each must show a " +
				"certificate with its IMEI as common name or as a DNS name. Empty: none is asked for.",
			Consequence: "Read again when it changes. **Never** leave INGEST_ADDR on once all devices have " +
				"[certificates](devices.md#device-certificates)."},
		{Name: "INGEST_PROXY_ADDR", Default: cli.Off, Value: cli.AddressOrOff(&s.ingestProxyAddr),
			Meaning:     "Where load balancers connect that put a PROXY header before each connection. `off`: nowhere.",
			Consequence: "Version 2 of the header, or 1 if it comes in one packet."},
		{Name: "INGEST_PROXY_TRUSTED", Value: s.trusted,
			Meaning:     "Addresses of these load balancers, CIDRs separated by commas.",
			Consequence: "**Never** set it wider than those: a trusted address can claim any other."},
		{Name: "INGEST_PROXY_TLS", Default: "false", Switch: true, Value: cli.Bool(&s.ingestProxyTLS),
			Meaning:     "Devices speak TLS through those load balancers.",
			Consequence: "INGEST_TLS_CLIENT_CA counts there too. `false`: devices prove nothing there."},
		{Name: "DEVICE_AUTHORITY", Default: everybody,
			Value: cli.OneOf(&s.deviceAuthority, everybody, allowedSet),
			Meaning: "Which devices are served. `everybody`: each that names a well-formed IMEI. `set`: " +
				"the members of the Redis set `devices:allowed`.",
			Consequence: "IMEIs are public: only INGEST_TLS_CLIENT_CA proves an identity. **Never** switch to " +
				"`set` before the set is filled: an empty one allows nobody."},
	}, fleet, []cli.Setting{
		{Name: "REGISTRY_REVERSE_INDEX", Default: "true", Switch: true,
			Value:   cli.Bool(&s.reverseIndex),
			Meaning: "Keeps the set of devices of each instance.",
			Consequence: "`false` saves that memory: the dead are swept by the full scan alone, and some losses " +
				"take ten heartbeat intervals to heal."},
		{Name: "REGISTRY_PARTITIONS", Default: auto, Value: powerOfTwo(&s.partitions),
			Meaning: "How many partitions the registry has, a power of two: 1 to 1024. `auto`: 16 on a " +
				"Redis Cluster, else 1.",
			Consequence: "[How many](timings.md#how-far-one-redis-goes). **Never** change it in a fleet that " +
				"runs: [stop all first](redis.md#redis-cluster)."},
		{Name: "TELEMETRY_STREAMS", Default: auto, Value: powerOfTwo(&s.telemetryStreams),
			Meaning: "Over how many streams telemetry is spread by IMEI, a power of two: 1 to 1024. " +
				"`auto`: as many as partitions on a Redis Cluster, else 1.",
			Consequence: "Consumers read [all of them](devices.md#several-streams). **Never** change it before " +
				"your consumers read the new ones too."},
		{Name: "TELEMETRY_MAXLEN", Default: "1000000", Value: cli.Number(&s.telemetryMaxLen, 1, 1e12),
			Meaning:     "Approximate cap of telemetry, in entries of all streams together.",
			Consequence: "The oldest are trimmed, **read or not**: your consumers may be down that long."},
	})
}

func (s *settings) trusted(v string) error {
	s.ingestProxyTrusted = nil
	for part := range strings.SplitSeq(v, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return errors.New("CIDRs separated by commas, such as 10.0.0.0/8,192.0.2.7/32")
		}
		s.ingestProxyTrusted = append(s.ingestProxyTrusted, prefix.Masked())
	}
	return nil
}

// auto lets the server's kind decide.
const auto = "auto"

// usualPartitions are for a Redis Cluster.
const usualPartitions = 16

// powerOfTwo stores 0 for auto.
func powerOfTwo(p *int) func(string) error {
	return func(v string) error {
		if *p = 0; v == auto {
			return nil
		}
		err := cli.Number(p, 1, guard.MostPartitions)(v)
		if err != nil || *p&(*p-1) != 0 {
			return fmt.Errorf("%s, or a power of two from 1 to %d", auto, guard.MostPartitions)
		}
		return nil
	}
}

func (s *settings) division() (guard.Layout, int) {
	partitions := cmp.Or(s.partitions, s.onCluster(usualPartitions))
	if partitions == 1 {
		return layoutOn(s.Redis), 1
	}
	return divided, partitions
}

func (s *settings) streams() int {
	_, partitions := s.division()
	return cmp.Or(s.telemetryStreams, s.onCluster(partitions))
}

func (s *settings) onCluster(n int) int {
	if s.Redis.Cluster == nil {
		return 1
	}
	return n
}

// divided is the layout of a registry in partitions, and of any on a Redis Cluster.
var divided = guard.Layout{Prefix: "{rollcall}:"}

func layoutOn(r connect.Redis) guard.Layout {
	if r.Cluster != nil {
		return divided
	}
	return guard.Layout{}
}

// divide stores the prefix of the keys, and the number of partitions.
func (s *settings) divide() {
	layout, partitions := s.division()
	s.Prefix, s.Partitions = layout.Prefix, partitions
}

// check rejects settings that are fine alone and unsafe together.
func (s *settings) check(in *cli.Input) {
	s.maxConnsGiven = in.Given("INGEST_MAX_CONNS")
	s.divide()
	s.Fleet.Check(in, "JANITOR", &s.Base)
	s.checkTLS(in)
	if in.Understood("INGEST_PROXY_ADDR", "INGEST_PROXY_TRUSTED") && s.ingestProxyAddr != cli.Off &&
		len(s.ingestProxyTrusted) == 0 {
		in.Fault("INGEST_PROXY_ADDR: expected INGEST_PROXY_TRUSTED with it: anybody could claim any address")
	}
}

func (s *settings) checkTLS(in *cli.Input) {
	if !in.Understood("INGEST_TLS_ADDR", "INGEST_PROXY_ADDR", "INGEST_PROXY_TLS") {
		return
	}
	noPair := s.ingestTLSCert == "" || s.ingestTLSKey == ""
	if s.ingestTLSAddr != cli.Off && noPair {
		in.Fault("INGEST_TLS_ADDR: expected INGEST_TLS_CERT and INGEST_TLS_KEY with it, got one or none")
	}
	if s.ingestProxyTLS && s.ingestProxyAddr == cli.Off {
		in.Fault("INGEST_PROXY_TLS: expected INGEST_PROXY_ADDR with it")
	} else if s.ingestProxyTLS && noPair {
		in.Fault("INGEST_PROXY_TLS: expected INGEST_TLS_CERT and INGEST_TLS_KEY with it, got one or none")
	}
	if s.ingestTLSClientCA != "" && !s.overTLS() {
		in.Fault("INGEST_TLS_CLIENT_CA: expected INGEST_TLS_ADDR or INGEST_PROXY_TLS with it: " +
			"only TLS has certificates")
	}
}

func (s *settings) overTLS() bool {
	return s.ingestTLSAddr != cli.Off || s.ingestProxyAddr != cli.Off && s.ingestProxyTLS
}

func (s *settings) withoutCertificate() (names []string) {
	if s.ingestAddr != cli.Off {
		names = append(names, "INGEST_ADDR")
	}
	if s.ingestProxyAddr != cli.Off && !s.ingestProxyTLS {
		names = append(names, "INGEST_PROXY_ADDR")
	}
	return names
}
