package janitor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// poor returns a server, with its administrator's client, and options of a user without these
// rights.
func poor(t *testing.T, without ...string) redistest.World {
	s := redistest.Start(t)
	c := s.Client()
	rules := []any{"ACL", "SETUSER", "poor", "on", ">p", "~*", "&*", "+@all"}
	for _, command := range without {
		rules = append(rules, "-"+command)
	}
	require.NoError(t, c.Do(t.Context(), rules...).Err())
	o := s.Options()
	o.Username, o.Password = "poor", "p"
	return redistest.World{Client: c, Options: o, Real: true}
}

// fill writes n records of full batches of so many items, of old terms.
func (f *fleet) fill(n, items int) {
	list := `["` + strings.Repeat(`356307042441013","`, items-1) + `356307042441013"]`
	pipe := f.Pipeline()
	for i := range n {
		pipe.XAdd(f.Context(), &redis.XAddArgs{Stream: f.Log(), ID: fmt.Sprintf("1-%d", i), Values: []string{"count", "0", "imeis", list}})
	}
	_, err := pipe.Exec(f.Context())
	require.NoError(f, err)
}

// A missing right does not fail the pass: it is logged once, and the log stays bounded by number,
// or is not trimmed.
func TestAUserThatMayNotTrimSweepsAllTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		without []string
		off     []string
		trimmed bool
	}{
		{nil, nil, true},
		{[]string{"memory"}, []string{CheckLogSize}, true},
		{[]string{"xtrim"}, []string{CheckLogTrim}, false},
	} {
		t.Run("without "+strings.Join(c.without, ", "), func(t *testing.T) {
			t.Parallel()
			w := poor(t, c.without...)
			f := setup(t, w)
			f.fill(2000, 50)
			r := f.leader(func(c *Config) {
				c.DeleteBatch, c.LogBytes, c.Interval = 50, 1<<20, time.Second // it resigns after three failures
			})
			epoch := r.Status().Epoch
			require.Empty(t, r.Status().Witness.ChecksOff, "nothing was evicted, nothing trimmed")
			for round := range 2 {
				f.indexed(fmt.Sprintf("dead-%d", round), 10)
				f.eventually(func() bool { return f.left(fmt.Sprintf("dead-%d", round)) == 0 })
			}
			for sweep, rep := range r.sweep(Request{}) {
				require.Equal(t, Done, rep.Outcome, rep.Error)
				r.counts(0, "janitor_passes_total", "sweep", sweep, "outcome", string(Failed))
			}
			require.Equal(t, c.off, r.Status().Witness.ChecksOff)
			require.NotContains(t, r.lines.String(), "pass failed")
			for _, off := range []string{"cannot read the size", "cannot trim"} {
				require.LessOrEqual(t, r.said(off), 1, "told once")
			}
			require.Equal(t, len(c.off), r.said("allow="))
			require.Equal(t, epoch, r.Status().Epoch, "the leader has no reason to resign")

			used, err := f.MemoryUsage(t.Context(), f.Log()).Result()
			require.NoError(t, err)
			require.Equal(t, c.trimmed, used < 5<<18, used)
			require.GreaterOrEqual(t, f.XLen(t.Context(), f.Log()).Val(), int64(LogLeast))
			require.Equal(t, 20, f.recorded(), "the newest stay")
		})
	}
}

func TestARightThatIsGivenBackIsUsed(t *testing.T) {
	t.Parallel()
	w := poor(t, "memory", "xtrim")
	f := setup(t, w)
	f.fill(1000, 50)
	r := f.leader(func(c *Config) { c.LogBytes = 1 })
	f.entries("dead", 3)
	r.sweep(Request{})
	require.Equal(t, []string{CheckLogSize, CheckLogTrim}, r.Status().Witness.ChecksOff)
	f.do("ACL", "SETUSER", "poor", "+@all")
	f.entries("dead", 3)
	r.sweep(Request{})
	require.Empty(t, r.Status().Witness.ChecksOff)
	require.Less(t, f.XLen(t.Context(), f.Log()).Val(), int64(LogLeast+100), "whole nodes, of 100 small records")
}

// Refused batches, for whatever reason, keep that owner's entries but do not stop the pass.
func TestAnOwnerWhoseBatchesAreRefusedIsLeftAlone(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		f.entries("dead", 1200)
		r := f.replica("r1", nil)
		r.faults.set(func([]any) error { return refusal("ERR no") }, nil)
		r.leads()
		rep := r.report("registry")
		require.Equal(f, Done, rep.Outcome, rep.Error)
		require.Equal(f, map[SkipReason]int{SkipUnreadable: firstBatch}, rep.Spared)
		f.has(1200, "dead")
		require.Zero(f, r.Accounts())
		require.Zero(f, r.Status().Unsettled)
		require.Regexp(f, `refuses to delete a dead owner's entries.* owner=dead error=".*ERR no`, r.lines.String())
	})
}

// A refusal lasts until somebody fixes it, and a dead owner is tried each second until then.
func TestARefusalToDeleteIsToldOnceWhileItLasts(t *testing.T) {
	t.Parallel()
	f := setup(t, poor(t, "hdel"))
	r := f.replica("r1", nil)
	f.indexed("dead", 3)
	allow := func(rules ...any) {
		f.must(f.Do(t.Context(), append([]any{"ACL", "SETUSER", "poor"}, rules...)...))
	}
	told := func(refusals, ends int) {
		t.Helper()
		require.Equal(t, refusals, r.said("refuses to delete a dead owner's entries"), r.lines.String())
		require.Equal(t, ends, r.said("deleting the dead owner's entries again"), r.lines.String())
	}
	refused := func() {
		t.Helper()
		for range 3 {
			rep := r.sweep(Request{}) // one sweep may leave the owner to the other
			require.Positive(t, rep["owners"].Spared[SkipUnreadable]+rep["registry"].Spared[SkipUnreadable], "it is shown")
		}
	}
	r.leads()
	refused()
	told(1, 0)
	allow("+hdel", "-hincrby")
	refused()
	told(2, 0)
	require.Contains(t, r.lines.String(), "HINCRBY on")
	allow("+@all")
	r.sweep(Request{})
	f.has(0, "dead")
	told(2, 1)
	allow("-hdel")
	f.indexed("dead", 3)
	refused()
	told(3, 1)
}

func TestWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"NOPERM this user has no permissions to run the 'memory|usage' command": true,
		"ERR unknown command 'MEMORY', with args beginning with: 'USAGE' 'k'":   true,
		"ERR unknown subcommand 'USAGE'. Try MEMORY HELP.":                      true,
		"ERR max number of clients reached":                                     false,
		"LOADING Redis is loading the dataset in memory":                        false,
		"READONLY You can't write against a read only replica.":                 false,
		"OOM command not allowed when used memory > 'maxmemory'.":               false,
		"NOAUTH Authentication required.":                                       false,
	} {
		require.Equal(t, want, NotAllowed(fmt.Errorf("wrapped: %w", refusal(text))), text)
	}
	require.False(t, NotAllowed(nil))
	require.False(t, NotAllowed(redis.Nil))
	require.False(t, NotAllowed(errors.New("ERR not of the server")))
}

// Each batch has a record, even if it deletes nothing.
func TestTheLogIsTrimmedAfterAPassWhoseBatchesDeletedNothing(t *testing.T) {
	t.Parallel()
	f := setup(t, poor(t, "unlink", "srem"))
	r := f.replica("r1", func(c *Config) { c.DeleteBatch, c.LogBytes = 1, 1 })
	f.live("a", "b", "c")
	f.indexed("dead", 700)
	r.leads()
	f.eventually(func() bool { return f.left("dead") == 0 })
	for range 2 {
		for sweep, rep := range r.sweep(Request{}) {
			require.Equal(t, Done, rep.Outcome, sweep)
		}
	}
	require.Less(t, f.XLen(t.Context(), f.Log()).Val(), int64(700), "the two passes have 1,400 records")
}

// An index that cannot be emptied is read for ever; that must cost little and hide nothing.
func TestAnIndexThatCannotBeEmptiedFillsNoLogAndStopsNoOtherOwner(t *testing.T) {
	t.Parallel()
	for _, without := range [][]string{{"unlink", "srem"}, {"unlink"}, {"srem"}} {
		t.Run("without "+strings.Join(without, ", "), func(t *testing.T) {
			t.Parallel()
			f := setup(t, poor(t, without...))
			r := f.replica("r1", func(c *Config) {
				c.DeleteBatch, c.LogBytes = 10, -1
			})
			f.live("a", "b", "c", "d", "e") // so that two deaths are not most
			f.indexed("dead", 100)
			r.leads()
			epoch := r.Status().Epoch
			f.eventually(func() bool { return f.recorded() == 100 })
			for sweep, rep := range r.sweep(Request{}) {
				require.Equal(t, Done, rep.Outcome, sweep)
			}
			f.indexed("late", 20)
			f.eventually(func() bool { return f.recorded() == 120 })
			require.LessOrEqual(t, f.XLen(t.Context(), f.Log()).Val(), int64(60), "few records are of nothing")
			for _, says := range []string{"batch by batch", "cannot empty dead owners"} {
				require.LessOrEqual(t, r.said(says), 1)
			}
			require.NotContains(t, r.lines.String(), "pass failed")
			require.Equal(t, epoch, r.Status().Epoch)

			f.do("ACL", "SETUSER", "poor", "+@all")
			r.sweep(Request{})
			r.sweep(Request{})
			require.Zero(t, f.Exists(t.Context(), f.Devices("dead"), f.Devices("late")).Val())
		})
	}
}
