package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dependency is a module as CONTRIBUTING.md has it.
type dependency struct{ licence, newest, why string }

func dependencies(t *testing.T) map[string]dependency {
	t.Helper()
	all := make(map[string]dependency)
	link := regexp.MustCompile(`\]\(https://pkg\.go\.dev/([^)]+)\)`)
	for section := range strings.SplitSeq(read(t, "CONTRIBUTING.md"), "\n## ") {
		for _, row := range tableRows(section, "module", "licence") {
			modules := link.FindAllStringSubmatch(row["module"], -1)
			licences, newest := strings.Split(row["licence"], ", "), strings.Split(row["newest"], ", ")
			require.Len(t, licences, len(modules), row["module"])
			require.Len(t, newest, len(modules), row["module"])
			for i, found := range modules {
				require.NotContains(t, all, found[1])
				all[found[1]] = dependency{licences[i], newest[i], row["why, and what would take its place"]}
			}
		}
	}
	return all
}

func TestEachDependencyIsListedWithItsReasonAndItsLicence(t *testing.T) {
	t.Parallel()
	listed := dependencies(t)
	direct := map[string]bool{}
	for _, folder := range []string{".", "orphan/mongodb", "availability", "cmd", "chaos", "bench", "test"} {
		for _, found := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(read(t, folder+"/go.mod"), -1) {
			if !strings.HasPrefix(found[1], "github.com/rollcall-redis/") {
				direct[found[1]] = true
			}
		}
	}
	require.Len(t, listed, len(direct), "CONTRIBUTING.md lists a module that no go.mod requires directly")
	for module := range direct {
		require.Contains(t, listed, module, "CONTRIBUTING.md lacks a module of go.mod")
		require.NotEmpty(t, listed[module].why, module)
		require.Regexp(t, `^20\d\d-\d\d$`, listed[module].newest, module)
		require.Equal(t, licenceOf(t, module), listed[module].licence, module)
	}
}

// licenceOf names the licence of a module by its text in the module cache, as SPDX does.
func licenceOf(t *testing.T, module string) string {
	t.Helper()
	said, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	require.NoError(t, err, module)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(said)), "LICENSE*"))
	require.NoError(t, err)
	require.Len(t, files, 1, module)
	bytes, err := os.ReadFile(files[0])
	require.NoError(t, err)
	text := strings.Join(strings.Fields(string(bytes)), " ")
	mit := strings.Contains(text, "Permission is hereby granted, free of charge")
	apache := strings.Contains(text, "Apache License") ||
		strings.Contains(text, "Licensed under the Apache License, Version 2.0")
	switch {
	case mit && apache:
		return "MIT and Apache-2.0"
	case apache: // modules of OpenTelemetry add that of Go, from which they have a file
		return "Apache-2.0"
	case mit:
		return "MIT"
	case strings.Contains(text, "Redistribution and use") && strings.Contains(text, "Neither the name"):
		return "BSD-3-Clause"
	case strings.Contains(text, "Redistribution and use"):
		return "BSD-2-Clause"
	}
	return "unknown"
}
