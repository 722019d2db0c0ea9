//go:build mutants

package chaos

import "testing"

// TestMutants demands that the judge rejects the row of each mutant.
func TestMutants(t *testing.T) { mutants.Run(t) }

// TestSearchMutants removes the protections that the search is about, one after the other, and
// demands that its oracle notices. TestSearch shows that the code passes with all of them.
func TestSearchMutants(t *testing.T) { searchMutants.Run(t) }
