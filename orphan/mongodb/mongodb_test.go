package mongodb_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/mongodb"
	"github.com/rollcall-redis/rollcall/orphan/mongodb/mongotest"
)

// unhurried is for tests in which no deadline is meant to pass.
const unhurried = time.Minute

func connect(t *testing.T, uri string, opts ...mongodb.Option) *mongodb.Source {
	t.Helper()
	src, err := mongodb.Connect(uri, append([]mongodb.Option{mongodb.Timeout(unhurried)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, src.Close(context.Background())) })
	return src
}

// filled is a database with documents in collection matches.
func filled(t *testing.T, db *mongotest.DB, docs ...bson.M) *mongotest.DB {
	t.Helper()
	_, err := db.Collection("matches").InsertMany(t.Context(), docs)
	require.NoError(t, err)
	return db
}

func matches(ids ...string) orphan.Query {
	return orphan.Query{Collection: "matches", IDs: ids, Fields: []string{"status"}}
}

func TestDocumentsHaveTheFieldsThatWereAskedFor(t *testing.T) {
	t.Parallel()
	ended := time.Date(2024, 2, 29, 12, 0, 0, 123e6, time.UTC)
	db := filled(t, mongotest.Database(t), bson.M{
		"_id": "m1", "status": "finished", "endedAt": ended, "rounds": int32(3), "seed": int64(1) << 40,
		"pace": 1.5, "rated": true, "secret": "is not asked for",
		"meta": bson.M{"by": bson.M{"name": "ada"}, "tags": bson.A{"a"}, "rows": bson.A{bson.M{"name": "eve"}}},
		"none": nil, "long": strings.Repeat("x", 64<<10+1), "ref": bson.NewObjectID(),
	}, bson.M{"_id": "m2"})

	docs, err := connect(t, db.URI).Documents(t.Context(), orphan.Query{
		Collection: "matches",
		IDs:        []string{"m1", "m2", "m3", "m1"},
		Fields: []string{
			"status", "endedAt", "rounds", "seed", "pace", "rated", "meta.by.name", "meta.by.age", "status.of",
			"meta.tags", "meta.rows.name", "none", "long", "ref", "never",
		},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]orphan.Document{
		"m1": {
			"status": "finished", "endedAt": ended, "rounds": int64(3), "seed": int64(1) << 40,
			"pace": 1.5, "rated": true, "meta.by.name": "ada",
			"meta.tags": bson.TypeArray, "none": bson.TypeNull, "long": bson.TypeString, "ref": bson.TypeObjectID,
		},
		"m2": {},
	}, docs)
}

func TestIDsAreTextOrObjectIDs(t *testing.T) {
	t.Parallel()
	const id = "507f1f77bcf86cd799439011"
	oid, err := bson.ObjectIDFromHex(id)
	require.NoError(t, err)
	text := connect(t, filled(t, mongotest.Database(t), bson.M{"_id": id, "status": "text"}).URI)
	object := connect(t, filled(t, mongotest.Database(t), bson.M{"_id": oid, "status": "object"}).URI)

	q := matches(id, strings.ToUpper(id))
	docs, err := text.Documents(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, map[string]orphan.Document{id: {"status": "text"}}, docs)
	docs, err = object.Documents(t.Context(), q)
	require.NoError(t, err)
	require.Empty(t, docs)

	q.ObjectIDs = true
	docs, err = object.Documents(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, map[string]orphan.Document{
		id: {"status": "object"}, strings.ToUpper(id): {"status": "object"},
	}, docs)
	docs, err = text.Documents(t.Context(), q)
	require.NoError(t, err)
	require.Empty(t, docs)

	for _, malformed := range []string{"", "507f", id + "00", "zzzf1f77bcf86cd799439011"} {
		q.IDs = []string{id, malformed}
		docs, err = object.Documents(t.Context(), q)
		require.ErrorContains(t, err, fmt.Sprintf("matches: %q is not an ObjectID", malformed))
		require.Empty(t, docs)
	}
}

func TestManyIDsAreAskedForInBatches(t *testing.T) {
	t.Parallel()
	var all []bson.M
	var ids []string
	for i := range 1200 {
		id := fmt.Sprintf("m%04d", i)
		ids = append(ids, id)
		if i%3 != 0 {
			all = append(all, bson.M{"_id": id, "status": id})
		}
	}
	server := mongotest.Start(t)
	db := filled(t, server.Database(), all...)
	proxy := newProxy(t, server.Addr())
	docs, err := connect(t, db.Through(proxy.Addr())).Documents(t.Context(), matches(ids...))
	require.NoError(t, err)
	require.Len(t, docs, 800)
	for _, m := range all {
		require.Equal(t, orphan.Document{"status": m["status"]}, docs[m["_id"].(string)])
	}
	var asked []int
	for _, find := range proxy.Finds() {
		some, err := find.Lookup("filter", "_id", "$in").Array().Values()
		require.NoError(t, err)
		asked = append(asked, len(some))
	}
	require.Equal(t, []int{500, 500, 200}, asked)
	require.Less(t, proxy.Largest(), 64<<10) // bytes of a message

	docs, err = connect(t, db.URI).Documents(t.Context(), matches())
	require.NoError(t, err)
	require.Empty(t, docs)
}

// FerretDB ignores most of it, so what is sent is what can be tested.
func TestWhatIsAskedIsSafeWhateverTheURISays(t *testing.T) {
	t.Parallel()
	server := mongotest.Start(t)
	db := filled(t, server.Database(), bson.M{"_id": "m1"})
	proxy := newProxy(t, server.Addr())
	src := connect(t, db.Through(proxy.Addr())+"&readConcernLevel=local&readPreference=secondary")
	_, err := src.Documents(t.Context(), matches("m1"))
	require.NoError(t, err)
	_, err = src.Empty(t.Context(), "matches")
	require.NoError(t, err)
	require.Len(t, proxy.Finds(), 2)
	for i, find := range proxy.Finds() {
		require.Equal(t, "majority", find.Lookup("readConcern", "level").StringValue())
		require.NotContains(t, find.String(), "secondary")
		projection := bson.M{}
		require.NoError(t, find.Lookup("projection").Unmarshal(&projection))
		require.Equal(t, []bson.M{{"_id": int32(1), "status": int32(1)}, {"_id": int32(1)}}[i], projection)
	}
}

func TestEmptyLooksForOneDocument(t *testing.T) {
	t.Parallel()
	db := filled(t, mongotest.Database(t), bson.M{"_id": "m1"})
	src := connect(t, db.URI)
	require.NoError(t, src.Ping(t.Context()))
	is := func(collection string) bool {
		empty, err := src.Empty(t.Context(), collection)
		require.NoError(t, err)
		return empty
	}
	require.False(t, is("matches"))
	require.True(t, is("missing"))
	_, err := db.Collection("matches").DeleteMany(t.Context(), bson.M{})
	require.NoError(t, err)
	require.True(t, is("matches"))

	docs, err := src.Documents(t.Context(), orphan.Query{Collection: "missing", IDs: []string{"m1"}})
	require.NoError(t, err)
	require.Empty(t, docs)
}

func TestAWrongURIIsAnErrorThatDoesNotRepeatIt(t *testing.T) {
	t.Parallel()
	for name, uri := range map[string]string{
		"nothing":                      "",
		"another scheme":               "postgres://user:hunter2@127.0.0.1/game",
		"an unescaped @ in a password": "mongodb://user:hunter2@hunter2@127.0.0.1/game",
		"an unescaped % in a password": "mongodb://user:%hunter2@127.0.0.1/game",
		"a password for a port":        "mongodb://user:hunter2",
		"a wrong option":               "mongodb://user:hunter2@127.0.0.1/game?authMechanism=hunter2",
		"options that contradict":      "mongodb://user:hunter2@h1,h2/game?directConnection=true",
		"no database":                  "mongodb://user:hunter2@127.0.0.1:27017",
		"no database but options":      "mongodb://user:hunter2@127.0.0.1:27017/?authSource=hunter2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mongodb.Connect(uri)
			require.ErrorContains(t, err, "mongodb: the URI")
			require.NotContains(t, err.Error(), "hunter2")
			if strings.Contains(name, "no database") {
				require.ErrorContains(t, err, "names no database")
			} else {
				require.ErrorContains(t, err, "mongodb://user:password@host")
			}
		})
	}
}

func TestARefusedPasswordIsNotRepeated(t *testing.T) {
	t.Parallel()
	db := mongotest.Start(t).Database()
	src := connect(t, strings.Replace(db.URI, "://", "://user:hunter2@", 1))
	_, err := src.Empty(t.Context(), "matches")
	require.ErrorContains(t, err, "user, password or authSource of the URI are wrong")
	require.NotContains(t, err.Error(), "hunter2")
}
