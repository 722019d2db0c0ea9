package live

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

var scenesOfIngest = []scene{
	{
		alert: "RollcallOwnerDied", fault: "a heartbeat on the roster ends, of an instance without devices",
		fleet: ingest(),
		strike: func(r *rig) {
			r.must("SET", "instance:heartbeat:guest", "1", "PX", "4000")
			r.must("SADD", "instances:roster", "guest")
		},
	},
	{
		alert: "RollcallEvictsMany", fault: "100 entries of a writer that is gone", fleet: ingest(),
		strike: func(r *rig) {
			for i := range 100 {
				r.must("HSET", "connections:registry", 356307042441000+i, "gone")
			}
		},
	},
	{
		alert: "RollcallShrank", fault: "one replica of three ends, with a goodbye", fleet: ingest(),
		strike: func(r *rig) {
			r.await("it is known that there were three", func() bool {
				return r.is(3, "max_over_time(count by (job) (teltonika_registry_held)[3m:3s])")
			})
			require.NoError(r, r.jobs["ingest"][2].Signal(syscall.SIGTERM))
		},
	},
	{
		alert: "RollcallGone", fault: "kill -9 of all replicas", fleet: ingest(),
		strike: func(r *rig) {
			for _, p := range r.jobs["ingest"] {
				p.Kill()
			}
		},
	},
	{
		alert: "RollcallNotSweeping", fault: "`JANITOR_INTERVAL` is an hour",
		fleet: ingest("JANITOR_INTERVAL=1h"),
	},
	{
		alert: "RollcallHeartbeatsFail", fault: "the replicas' user of Redis loses the right to heartbeats",
		fleet:  ingest(),
		strike: func(r *rig) { r.deny("~[^i]*", "~instances:*", "~instance:d*") },
	},
	{
		alert: "RollcallRegistrationsFail", fault: "the replicas' user of Redis may not `HMGET` the registry",
		fleet: ingest(),
		strike: func(r *rig) {
			r.deny("~[^c]*", "~commands:*", "(~* &* +@all -hmget)")
			r.devices(wanderers)
		},
	},
	{
		alert: "RollcallHeals", fault: "`DEL connections:registry`", fleet: ingest(),
		strike: func(r *rig) { r.must("DEL", "connections:registry") },
	},
	{
		alert: "RollcallUnreadable", fault: "an entry that names nobody", fleet: ingest(),
		strike: func(r *rig) { r.must("HSET", "connections:registry", "356307042441013", "") },
	},
	{
		alert: "RollcallTelemetryNotStored", fault: "`telemetry:teltonika` is a string", fleet: ingest(),
		strike: func(r *rig) {
			r.must("DEL", "telemetry:teltonika")
			r.must("SET", "telemetry:teltonika", "what is this")
		},
	},
	{
		// The threshold of a second is as it is: so the fleet bears to wait for that long.
		alert: "RollcallAcknowledgementsSlow", fault: "Redis is stopped (SIGSTOP) for 1.3 s in each 6 s",
		fleet: ingest("HEARTBEAT_INTERVAL=3s", "HEARTBEAT_TTL=9s", "JANITOR_LEASE_TTL=6s"),
		strike: func(r *rig) {
			pid := r.redis.PID()
			r.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
			r.again(4700*time.Millisecond, func(ctx context.Context) {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
				time.Sleep(1300 * time.Millisecond) // the fault itself
				_ = syscall.Kill(pid, syscall.SIGCONT)
			})
		},
	},
	{
		alert: "RollcallDeadLetters", fault: "a device sends a frame of codec 0x55", fleet: ingest(),
		strike: func(r *rig) {
			conn, err := net.Dial("tcp", r.jobs["ingest"][0].devices)
			require.NoError(r, err)
			r.Cleanup(func() { _ = conn.Close() })
			hello, err := teltonika.AppendIMEI(nil, "356307042441013")
			require.NoError(r, err)
			_, err = conn.Write(teltonika.AppendEnvelope(hello, []byte{0x55, 1, 0, 0, 0, 1}))
			require.NoError(r, err)
		},
	},
	{
		alert: "RollcallFlooded", fault: "4,500 sockets say nothing, and come back when they are closed",
		fleet:  ingest(),
		strike: func(r *rig) { r.flood(r.jobs["ingest"][0].devices, 4500) },
	},
	{
		alert: "RollcallCrowded", fault: "29 devices report to a replica of 30 sockets",
		fleet: func(r *rig) {
			r.several(1, "ingest", slices.Concat(quick, []string{"INGEST_MAX_CONNS=30"})...)
			r.devices(trackers)
		},
		strike: func(r *rig) {
			more := trackers
			more.Devices, more.FirstIMEI = 9, 86_000_000_000_000
			r.devices(more)
		},
	},
	{
		alert: "RollcallCertificateEnds", fault: "devices are shown a certificate that ends within an hour",
		fleet: func(r *rig) {
			cert, key := endsSoon(r)
			ingest("INGEST_TLS_ADDR=127.0.0.1:0", "INGEST_TLS_CERT="+cert, "INGEST_TLS_KEY="+key)(r)
		},
	},
	{
		alert: "RollcallAuthorityUnknown", fault: "`devices:allowed` is a string",
		fleet: func(r *rig) {
			args := []any{"SADD", "devices:allowed"}
			for i := range 20 {
				args = append(args, imei(35_630_704_000_000+i))
			}
			r.must(args...)
			ingest("DEVICE_AUTHORITY=set")(r)
		},
		strike: func(r *rig) {
			r.must("DEL", "devices:allowed")
			r.must("SET", "devices:allowed", "what is this")
			r.devices(wanderers)
		},
	},
}

// endsSoon writes a certificate and its key.
func endsSoon(t testing.TB) (certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return certFile, keyFile
}

// imei adds the check digit.
func imei(digits int) string {
	for check := '0'; ; check++ {
		if s := strconv.Itoa(digits) + string(check); teltonika.LuhnValid(s) {
			return s
		}
	}
}

// flood keeps so many sockets open that say nothing, until the test ends.
func (r *rig) flood(addr string, sockets int) {
	r.background(func(ctx context.Context) {
		var all sync.WaitGroup
		defer all.Wait()
		for range sockets {
			all.Go(func() {
				for ctx.Err() == nil {
					conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
					if err != nil {
						continue
					}
					stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
					_, _ = conn.Read(make([]byte, 1)) // until it is closed
					stop()
					_ = conn.Close()
				}
			})
		}
	})
}
