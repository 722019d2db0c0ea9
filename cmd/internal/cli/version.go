package cli

import (
	_ "embed"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// archive is filled in by git archive: describe, commit, its time.
//
//go:embed archive.txt
var archive string

// Version returns the module's version, in a checkout with the revision, or what git archive wrote
// into the sources, or "unknown".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info.Main.Version, archive)
}

func versionOf(built, archive string) string {
	if built != "" && built != "(devel)" {
		return built
	}
	fields := strings.Split(strings.TrimSpace(archive), "|")
	if len(fields) != 3 || strings.HasPrefix(fields[0], "$Format") {
		return built
	}
	describe, commit := fields[0], fields[1]
	seconds, err := strconv.ParseInt(fields[2], 10, 64)
	switch {
	case describe != "":
		return describe
	case err != nil || len(commit) < 12:
		return built
	}
	// As the go command names a version without an earlier tag.
	return "v0.0.0-" + time.Unix(seconds, 0).UTC().Format("20060102150405") + "-" + commit[:12]
}
