package settings

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// WriteHelp writes every setting with its default and meaning.
func WriteHelp(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`ingest accepts Teltonika trackers, stores their telemetry in Redis, keeps the
registry of who holds which device, and sweeps out what dead replicas left.

Usage: ingest [--name value ...]
       ingest command [-h]   sends a device a command, waits for its outcome
       ingest demo           shows what happens when replicas die, join and stop
       ingest simulate [-h]  runs a fleet of simulated trackers

Without a command it serves, and needs REDIS_URL. Each setting can be given as a
flag or in the environment; a flag wins.

`)
	for i := range table {
		s := &table[i]
		def := s.def
		switch {
		case s.required:
			def = "none, required"
		case def == "":
			def = "empty"
		}
		fmt.Fprintf(&b, "  --%s, %s (default: %s)\n", s.flag(), s.name, def)
		for _, line := range wrap(s.help, 70) {
			fmt.Fprintf(&b, "        %s\n", line)
		}
	}
	b.WriteString(`
  -h, --help
        this text
  --version
        the program's version

SIGTERM or SIGINT stops it gracefully; a second one at once. Exit status: 0
after a graceful stop, 1 on a failure at run time, 2 on wrong usage or settings.
`)
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap breaks a text at spaces into lines of at most width bytes, where words
// allow.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// LogValue is what a start-up line of the log says of the settings: those that
// decide what this replica does, none that is secret.
func (s *Settings) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("redis", s.Redis.String()),
		slog.String("ingest_addr", s.IngestAddr),
		slog.Int("ingest_max_conns", s.IngestMaxConns),
		slog.String("ingest_tls_addr", s.IngestTLSAddr),
		slog.String("ingest_proxy_addr", s.IngestProxyAddr),
		slog.Any("ingest_proxy_trusted", s.IngestProxyTrusted),
		slog.String("device_authority", s.DeviceAuthority),
		slog.String("http_addr", s.HTTPAddr),
		slog.Bool("admin", s.AdminToken != ""),
		slog.Duration("heartbeat_interval", s.HeartbeatInterval),
		slog.Duration("heartbeat_ttl", s.HeartbeatTTL),
		slog.Duration("janitor_interval", s.JanitorInterval),
		slog.Duration("janitor_lease_ttl", s.JanitorLeaseTTL),
		slog.Bool("janitor_dry_run", s.JanitorDryRun),
		slog.Bool("reverse_index", s.ReverseIndex),
		slog.Int64("telemetry_maxlen", s.TelemetryMaxLen),
		slog.Duration("shutdown_grace", s.ShutdownGrace),
	)
}

// Names returns every setting's name in the environment.
func Names() []string {
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].name
	}
	return names
}
