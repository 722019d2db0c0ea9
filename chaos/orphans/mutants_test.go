//go:build mutants

package orphans

import "testing"

func TestMutants(t *testing.T) { mutants.Run(t) }

func TestProofMutants(t *testing.T) { proofMutants.Run(t) }

// TestSearchMutants removes the protections that the search is about, one after the other, and
// demands that its oracle notices.
func TestSearchMutants(t *testing.T) { searchMutants.Run(t) }
