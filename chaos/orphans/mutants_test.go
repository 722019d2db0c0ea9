//go:build mutants

package orphans

import "testing"

func TestMutants(t *testing.T) { mutants.Run(t) }
