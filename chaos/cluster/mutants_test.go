//go:build mutants

package cluster

import "testing"

func TestMutants(t *testing.T) { mutants.Run(t) }
