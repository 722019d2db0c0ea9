package mongodb

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

// No single server shows it: the driver tells only the members of a replica set.
func TestThePrimaryIsReadWhateverTheURISays(t *testing.T) {
	t.Parallel()
	o := clientOptions("mongodb://h1,h2/game?replicaSet=rs" +
		"&readPreference=secondary&readConcernLevel=local&maxPoolSize=99")
	require.NoError(t, o.Validate())
	require.Equal(t, readpref.PrimaryMode, o.ReadPreference.Mode())
	require.Equal(t, "majority", o.ReadConcern.Level)
	require.EqualValues(t, connections, *o.MaxPoolSize)
}
