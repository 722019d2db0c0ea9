package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/janitor"
)

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
