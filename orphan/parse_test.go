package orphan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
)

func TestTheRulesForColyseusAreWithoutFault(t *testing.T) {
	rules, err := Parse(ColyseusYAML())
	require.NoError(t, err)
	require.NoError(t, Validate(rules, guard.Layout{}))
	require.Equal(t, rules, Colyseus())
	require.Equal(t, []string{
		`rules[1] "queue": nothing in unless_lost tells that what keep_if looks for was lost`,
	}, Warnings(rules))
}
