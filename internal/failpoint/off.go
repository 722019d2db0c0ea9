//go:build !failpoints || !unix

package failpoint

import "context"

// Hit does nothing in this build.
func Hit(Name) {}

// HitPast does nothing in this build.
func HitPast(ctx context.Context, _ Name) context.Context { return ctx }
