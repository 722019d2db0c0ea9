package availability

import (
	"context"
	"fmt"
	"slices"
)

// voidMarks returns marks of an outdated version: they cannot be carried out, yet refuse
// heartbeats.
func voidMarks(those []Condemned, states []State, flipped []string) (marks []any) {
	for _, s := range states {
		for _, c := range those {
			if c.ID == s.ID && c.Version != s.Version && !slices.Contains(flipped, c.ID) {
				marks = append(marks, c.ID, c.Version)
			}
		}
	}
	return marks
}

// lift removes pairs of mitra and value that are unchanged.
func (x *offlinePass) lift(ctx context.Context, marks []any) error {
	if x.DryRun() {
		return nil
	}
	for part := range slices.Chunk(marks, 2*applyOf) {
		err := x.Call(ctx, func(ctx context.Context) error {
			return pardonScript.Run(ctx, x.rdb, x.keys.all(), part...).Err()
		})
		if err != nil {
			return fmt.Errorf("availability: lift marks: %w", err)
		}
	}
	return nil
}
