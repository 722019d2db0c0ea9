//go:build mutants

package availability

import "testing"

func TestMutants(t *testing.T) { mutants.Run(t) }
