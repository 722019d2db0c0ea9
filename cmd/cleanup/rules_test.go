package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func TestPacksAreListedAndPrinted(t *testing.T) {
	t.Parallel()
	code, out, _ := says(t, "rules")
	require.Equal(t, cli.ExitOK, code)
	for _, name := range rules.Packs() {
		require.Regexp(t, `(?m)^`+name+` +\S.*\.$`, out)
		text, ok := rules.Pack(name)
		require.True(t, ok)
		code, printed, _ := says(t, "rules", name)
		require.Equal(t, []any{cli.ExitOK, string(text)}, []any{code, printed})
	}
	tells(t, `2 rules nosuch ~ no pack "nosuch"; there are bee-queue, bullmq,`, nil)
}

func TestPacksRunBesideFilesAndOneAnother(t *testing.T) {
	t.Parallel()
	file := rulesFile(t, ofTests)
	s, err := loaded(nil, append([]string{"RULES=pack:bullmq," + file + ",pack:rq"}, needed...))
	require.NoError(t, err)
	require.Equal(t, "bullmq-jobs", s.rules[0].Name)
	require.Equal(t, "rq-jobs", s.rules[len(s.rules)-1].Name)
	for rules, want := range map[string]string{
		"pack:bulmq":            "RULES (pack:bulmq): no such pack; there are bee-queue, bullmq, celery",
		"pack:rq,/nowhere/file": "/nowhere/file: cannot be read",
		"pack:rq,pack:rq":       "stands twice",
	} {
		_, err := loaded(nil, append([]string{"RULES=" + rules}, needed...))
		require.ErrorContains(t, err, want)
	}
}
