package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/janitor"
)

// actTimeout bounds all requests but sweeps.
const actTimeout = 30 * time.Second

// acting are the rows of what only a replica can do.
func (f *fleet) acting(more ...cli.Setting) []cli.Setting {
	rows := f.table()
	rows[0].Required = false // REDIS_URL
	return slices.Concat(more, []cli.Setting{f.urls()}, f.base.TokenTable(), rows)
}

func (f *fleet) checkActing(in *cli.Input) {
	f.check(in)
	switch {
	case len(f.http) == 0:
		in.Fault("--http: expected URLs of replicas, such as http://10.0.0.7:8080; only a replica can do this")
	case f.base.AdminToken == "":
		in.Fault("ADMIN_TOKEN: expected the replicas' token; it is not set")
	}
}

// post asks the replicas in turn: only the leader can do some things, and some replicas may be
// away. did is called after each that does it, and returns whether that is enough. If none does it,
// the error is the last refusal, or otherwise the last one; if some do, that of one not reached.
func (f *fleet) post(ctx context.Context, path string, p url.Values, to any, did func(base string) bool) error {
	var refused, away error
	some := false
	for _, base := range f.http {
		_, err := request(ctx, http.MethodPost, base+path+"?"+p.Encode(), string(f.base.AdminToken), to)
		no, answered := errors.AsType[*refusal](err)
		switch {
		case err == nil && did(base):
			return nil
		case err == nil:
			some = true
		case answered && no.Status == http.StatusConflict:
			refused = err
		case !answered && unasked(err) && ctx.Err() == nil:
			away = err
		default: // the outcome is unknown
			return err
		}
	}
	if some {
		return away
	}
	return cmp.Or(refused, away)
}

// unasked errors mean that there was no connection, so that nothing was asked.
func unasked(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func pause() *cli.Command {
	var f fleet
	p := janitor.Pause{Who: me()}
	var length time.Duration
	return &cli.Command{
		Name: "rollcall pause",
		About: `rollcall pause holds every leader, also those to come, until it is resumed or --for has
passed. Devices are served and routed meanwhile. It writes to Redis.

  rollcall pause 'deployment 17' --for 30m`,
		Arguments: "REASON", Mixed: true,
		Settings: append([]cli.Setting{
			{Name: "for", Value: cli.Duration(&length, time.Second, 30*24*time.Hour),
				Meaning: "how long; without it, until rollcall resume"},
			{Name: "who", Value: cli.Text(&p.Who),
				Meaning: "who pauses, for those who find it; without it, user and host"}}, f.table()...),
		Check: f.checks(one(&p.Why, "a reason, in quotes, for those who find the sweeping held")),
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			ctx, cancel := context.WithTimeout(ctx, actTimeout)
			defer cancel()
			if length > 0 {
				p.Until = time.Now().Add(length).Round(time.Second)
			}
			err := f.write(ctx, stderr, func(c *connect.Clients, keys guard.Layout) error {
				text, err := json.Marshal(p)
				if err != nil {
					return err
				}
				if err := c.Data.Set(ctx, keys.Paused(), text, length).Err(); err != nil {
					return err
				}
				note(ctx, c, keys, timeline.Event{Kind: timeline.Pause, Who: p.Who, Why: p.Why,
					Until: p.Until})
				return nil
			})
			if err != nil {
				return err
			}
			return f.reply(stdout, map[string]any{"paused": p}, false, func() error {
				if length == 0 {
					return line(stdout, "paused until it is resumed: rollcall resume ends it")
				}
				return line(stdout, "paused for %s, until %s", inspect.Short(length), p.Until.UTC().Format(time.RFC3339))
			})
		},
		Notes: exits,
	}
}

// note adds an event, and ignores errors: the action is done, even if this user may not write to
// the timeline.
func note(ctx context.Context, c *connect.Clients, keys guard.Layout, e timeline.Event) {
	e.By = "rollcall"
	_ = timeline.Add(ctx, c.Data, keys.Timeline(), e)
}

func me() string {
	name, host := "somebody", ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = "@" + h
	}
	return name + host
}

func (f *fleet) write(
	ctx context.Context, stderr io.Writer, do func(c *connect.Clients, keys guard.Layout) error,
) error {
	clients, err := connect.Once(ctx, &f.base.Redis, controlDeadline)
	if err != nil {
		return f.advised(err)
	}
	defer func() { _ = clients.Close() }()
	f.missing(ctx, inspect.New(clients.Data, f.layout()), stderr)
	return f.advised(do(clients, f.layout()))
}

func resume() *cli.Command {
	var f fleet
	return &cli.Command{
		Name:     "rollcall resume",
		About:    `rollcall resume ends a pause. That there is none is no failure. It writes to Redis.`,
		Settings: f.table(),
		Check:    f.check,
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			ctx, cancel := context.WithTimeout(ctx, actTimeout)
			defer cancel()
			err := f.write(ctx, stderr, func(c *connect.Clients, keys guard.Layout) error {
				n, err := c.Data.Del(ctx, keys.Paused()).Result()
				if n > 0 {
					note(ctx, c, keys, timeline.Event{Kind: timeline.Resume, Who: me()})
				}
				return err
			})
			if err != nil {
				return err
			}
			return f.reply(stdout, map[string]any{"paused": nil}, false, func() error { return line(stdout, "not paused") })
		},
		Notes: exits,
	}
}

func resign() *cli.Command {
	var f fleet
	return &cli.Command{
		Name: "rollcall resign",
		About: `rollcall resign has the leader give up the lease, so that another replica leads. It needs
--http with the leader's URL, or those of all replicas: the leader is found among them.`,
		Settings: f.acting(),
		Check:    f.checkActing,
		Run: func(ctx context.Context, stdout, _ io.Writer) error {
			ctx, cancel := context.WithTimeout(ctx, actTimeout)
			defer cancel()
			if err := f.post(ctx, "/api/v1/resign", nil, &struct{}{}, func(string) bool { return true }); err != nil {
				return err
			}
			return f.reply(stdout, map[string]any{"resigned": true}, false, func() error {
				return line(stdout, "the leader has resigned")
			})
		},
		Notes: exits,
	}
}

func sweep() *cli.Command {
	var f fleet
	var owner, name string
	var dry bool
	return &cli.Command{
		Name: "rollcall sweep",
		About: `rollcall sweep has the leader run one pass of each sweep now, and shows the reports; with
--dry-run it tells what would go, and deletes nothing. It needs --http with the leader's
URL, or those of all replicas: the leader is found among them. Where the registry has
several partitions each leader that is named sweeps its own.

  rollcall sweep --dry-run --http http://10.0.0.7:8080,http://10.0.0.8:8080`,
		Settings: f.acting(
			cli.Setting{Name: "owner", Value: cli.Text(&owner),
				Meaning: "only what this instance left; needs REDIS_URL, to look whether it lives"},
			cli.Setting{Name: "sweep", Value: cli.Text(&name), Meaning: "only this sweep"},
			cli.Setting{Name: "dry-run", Default: "false", Switch: true, Value: cli.Bool(&dry),
				Meaning: "judge and report, delete nothing"}),
		Check: func(in *cli.Input) {
			f.checkActing(in)
			if owner != "" && !in.Given("REDIS_URL") {
				in.Fault("REDIS_URL: expected the fleet's Redis, to look whether --owner lives; it is not set")
			}
		},
		Run: func(ctx context.Context, stdout, _ io.Writer) error {
			if owner != "" {
				if err := f.checkDead(ctx, owner); err != nil {
					return err
				}
			}
			q := url.Values{"dry_run": {strconv.FormatBool(dry)}}
			if owner != "" {
				q.Set("owner", owner)
			}
			if name != "" {
				q.Set("sweep", name)
			}
			reports, err := f.sweep(ctx, q)
			if len(reports) == 0 && err != nil {
				return err
			}
			return cmp.Or(f.showReports(stdout, reports), err)
		},
		Notes: exits + " A pass that is held is no failure.",
	}
}

// sweep asks the leader, or with several partitions each leader that was given, one after the
// other. An error beside reports comes from a replica that was not reached or did not do it.
func (f *fleet) sweep(ctx context.Context, q url.Values) (all []janitor.Report, err error) {
	var answer struct {
		Reports []janitor.Report `json:"reports"`
	}
	err = f.post(ctx, "/api/v1/sweep", q, &answer, func(base string) bool {
		all = append(all, answer.Reports...)
		answer.Reports = nil
		return alone(ctx, base)
	})
	return partition.Sum(all), err
}

// alone reports whether a leader leads the whole registry, which then is not divided. On an error
// the other replicas are asked, too; without partitions they answer that they do not lead.
func alone(ctx context.Context, base string) bool {
	var s struct {
		Partitions *struct{} `json:"partitions"`
	}
	_, err := request(ctx, http.MethodGet, base+"/api/v1/status", "", &s)
	return err == nil && s.Partitions == nil
}

func (f *fleet) checkDead(ctx context.Context, owner string) error {
	return f.write(ctx, io.Discard, func(c *connect.Clients, keys guard.Layout) error {
		known, alive, err := inspect.New(c.Data, keys).Owner(ctx, owner)
		switch {
		case err != nil:
			return err
		case alive:
			return fmt.Errorf("%s lives: its heartbeat exists, so nothing of it is swept", owner)
		case !known:
			return fmt.Errorf("no instance is known by the name %s: neither roster, index nor registry has it", owner)
		}
		return nil
	})
}

// showReports returns an error if a pass failed.
func (f *fleet) showReports(w io.Writer, reports []janitor.Report) (err error) {
	if f.json {
		err = writeJSON(w, map[string]any{"reports": reports})
	} else {
		err = showPasses(w, reports, time.Now(), widthOf(w))
	}
	failed := slices.IndexFunc(reports, func(r janitor.Report) bool { return r.Outcome == janitor.Failed })
	if err == nil && failed >= 0 {
		err = fmt.Errorf("sweep %s failed: %s", reports[failed].Sweep, reports[failed].Error)
	}
	return err
}
