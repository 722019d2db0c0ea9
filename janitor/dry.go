package janitor

import "time"

// dryLooks remembers what dry runs found in the indexes of the dead. Nothing of them goes, and
// reading all of it again each second would cost Redis more than sweeping it. It is for the passes
// of one sweep, which never overlap.
type dryLooks struct {
	byOwner map[string]dryLook
}

type dryLook struct {
	at                    time.Time
	condemned, unreadable int
}

// due returns the fallen whose indexes this pass looks at: all, unless this janitor only ever
// judges and nobody asked for the pass; then those that were not looked at for an interval. What is
// known of the others goes into the report again, so that it says of all what would go.
func (d *dryLooks) due(p *Pass, fallen []string) (due []string) {
	if !p.t.j.cfg.DryRun || p.req.asked {
		return fallen
	}
	known := make(map[string]dryLook, len(fallen)) // and so whoever is not among the fallen any more is forgotten
	for _, owner := range fallen {
		look, there := d.byOwner[owner]
		if !there || time.Since(look.at) >= p.t.j.cfg.Interval {
			due = append(due, owner)
			continue
		}
		known[owner] = look
		p.report.Condemned += look.condemned
		p.Spared(SparedUnreadable, look.unreadable)
	}
	d.byOwner = known
	return due
}

// look calls f, which looks at an owner's whole index, and remembers what it found there.
func (d *dryLooks) look(p *Pass, owner string, f func() error) error {
	found := dryLook{time.Now(), -p.report.Condemned, -p.report.Spared[SparedUnreadable]}
	err := f()
	if err == nil && p.t.j.cfg.DryRun && d.byOwner != nil {
		found.condemned += p.report.Condemned
		found.unreadable += p.report.Spared[SparedUnreadable]
		d.byOwner[owner] = found
	}
	return err
}
