package rules

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The rules that people wrote first for their library's keys would have taken what lives.
func TestRulesThatLackPlacesOfALibraryAreNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{name: a, keys: "bull:mail:{job}", type: hash, not: {job: [id]},
		  keep_if: [{member: {zset: "bull:mail:completed", of: "{job}"}}, {member: {zset: "bull:mail:failed", of: "{job}"}},
		    {member: {zset: "bull:mail:delayed", of: "{job}"}}, {member: {zset: "bull:mail:prioritized", of: "{job}"}},
		    {member: {zset: "bull:mail:waiting-children", of: "{job}"}}], unless_lost: [{exists: "bull:mail:id"}]}`: `jobs of BullMQ and Bull are also in wait, active, paused`,
		`{name: a, keys: "bull:{queue}:{job}", read: hash, min_age: {field: .finishedOn, unit: ms, over: 1h},
		  keep_if: [{member: {zset: "bull:{queue}:completed", of: "{job}"}}]}`: `are also in failed:`,
		`{name: a, keys: "bull:{queue}:{job}", read: hash, min_age: {field: .finishedOn, unit: ms, over: 1h},
		  keep_if: [{member: {zset: "bull:{queue}:completed", of: "{job}"}}, {member: {zset: "bull:{queue}:failed", of: "{job}"}}]}`: "",
		`{name: a, keys: "bull:{queue}:{job}:logs", keep_if: [{exists: "bull:{queue}:{job}"}]}`: "",
		`{name: a, members: {hash: "bq:mail:jobs", as: job}, keep_if: [{member: {set: "bq:mail:succeeded", of: "{job}"}},
		  {member: {set: "bq:mail:failed", of: "{job}"}}, {member: {zset: "bq:mail:delayed", of: "{job}"}}]}`: `jobs of Bee-Queue are also in waiting, active`,
		`{name: a, keys: "resque:worker:{host}:{pid}:{queues}",
		  keep_if: [{member: {set: "resque:workers", of: "{host}:{pid}:{queues}"}}]}`: `resque:worker:ping:HOST:PID looks like a worker`,
		`{name: a, keys: "resque:worker:{host}:{pid}:{queues}", not: {host: [ping]},
		  keep_if: [{member: {set: "resque:workers", of: "{host}:{pid}:{queues}"}}]}`: "",
		`{name: a, members: {set: "shop:_kombu.binding.reply.celery.pidbox", as: b}, keep_if: [{exists: "{b}"}]}`: "all clients share",
	} {
		rules, err := Parse([]byte("rules: [" + strings.ReplaceAll(text, "\t", " ") + "]"))
		require.NoError(t, err, text)
		said := strings.Join(Warnings(rules), "\n")
		if want != "" {
			require.Contains(t, said, want)
			continue
		}
		require.NotContains(t, said, "jobs of")
		require.NotContains(t, said, "looks like")
	}
}

func TestWhatIsShippedLacksNoPlaceOfALibrary(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(bullmq)
	require.NoError(t, err)
	texts := [][]byte{example}
	for _, name := range Packs() {
		text, _ := Pack(name)
		texts = append(texts, text)
	}
	for _, text := range texts {
		rules, err := Parse(text)
		require.NoError(t, err)
		said := strings.Join(Warnings(rules), "\n")
		require.NotContains(t, said, "jobs of")
		require.NotContains(t, said, "looks like")
		require.NotContains(t, said, "share")
	}
}
