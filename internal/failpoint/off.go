//go:build !failpoints || !unix

package failpoint

import "context"

// Hit is empty in this build.
func Hit(Name) {}

// HitPast is empty in this build.
func HitPast(ctx context.Context, _ Name) context.Context { return ctx }
