package mongodb_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/mongodb"
	"github.com/rollcall-redis/rollcall/orphan/mongodb/mongotest"
)

// short is for tests in which the deadline is meant to pass.
const short = 100 * time.Millisecond

var (
	m1    = bson.M{"_id": "m1", "status": "finished"}
	found = map[string]orphan.Document{"m1": {"status": "finished"}} // by matches("m1")
)

// behind returns a proxy to a server with documents, and the URI through it.
func behind(t *testing.T, docs ...bson.M) (proxy *Proxy, uri string) {
	t.Helper()
	server := mongotest.Start(t)
	proxy = newProxy(t, server.Addr())
	return proxy, filled(t, server.Database(), docs...).Through(proxy.Addr())
}

// nothingIsKnown holds a source to what it owes when it cannot tell, and returns its error.
func nothingIsKnown(t *testing.T, src *mongodb.Source) error {
	t.Helper()
	docs, err := src.Documents(t.Context(), matches("m1"))
	require.Error(t, err)
	require.Nil(t, docs)
	empty, emptyErr := src.Empty(t.Context(), "matches")
	require.Error(t, emptyErr)
	require.False(t, empty)
	return err
}

func TestConnectDoesNotWaitForAServer(t *testing.T) {
	t.Parallel()
	src := connect(t, "mongodb://127.0.0.1:1/game", mongodb.Timeout(short))
	err := nothingIsKnown(t, src)
	require.ErrorContains(t, err, "mongodb: matches: no answer within")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Error(t, src.Ping(t.Context()))
}

func TestAnAnswerBehindTheDeadlineIsNone(t *testing.T) {
	t.Parallel()
	proxy, uri := behind(t, m1)
	src := connect(t, uri, mongodb.Timeout(short))
	proxy.Hold()
	for proxy.Hits() == 0 { // a slow machine needs the deadline for less
		require.ErrorContains(t, nothingIsKnown(t, src), "no answer within")
	}
}

// The driver keeps a connection whose answer did not come in time, and reads it off later.
func TestAnAnswerThatComesLateIsNotTheNextQuestions(t *testing.T) {
	t.Parallel()
	proxy, uri := behind(t, m1)
	src := connect(t, uri)
	require.NoError(t, src.Ping(t.Context()))
	proxy.Hold()
	for proxy.Hits() == 0 {
		ctx, cancel := context.WithTimeout(t.Context(), short)
		_, err := src.Documents(ctx, matches("m1"))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), unhurried.String()) // it is the caller who did not wait
	}
	proxy.Release()
	docs, err := src.Documents(t.Context(), matches("m2"))
	require.NoError(t, err)
	require.Empty(t, docs)
	docs, err = src.Documents(t.Context(), matches("m1"))
	require.NoError(t, err)
	require.Equal(t, found, docs)
}

func TestOneBatchThatFailsLeavesNothingOfTheOthers(t *testing.T) {
	t.Parallel()
	proxy, uri := behind(t, m1)
	src := connect(t, uri, mongodb.Timeout(short))
	ids := make([]string, 600)
	ids[0] = "m1"
	for proxy.Cut(1); proxy.Hits() == 0; {
		docs, err := src.Documents(t.Context(), matches(ids...))
		require.Error(t, err)
		require.Nil(t, docs)
	}
}

// A server answers a find in parts where documents are large.
func TestAnAnswerInPartsIsWholeOrNone(t *testing.T) {
	t.Parallel()
	proxy, uri := behind(t, m1, bson.M{"_id": "m2"}, bson.M{"_id": "m3"})
	const batchSize = "\x10batchSize\x00" // an int32 of that name, followed by its value
	proxy.Rewrite(batchSize+"\xf5\x01\x00\x00", batchSize+"\x01\x00\x00\x00")
	src := connect(t, uri)
	docs, err := src.Documents(t.Context(), matches("m1", "m2", "m3"))
	require.NoError(t, err)
	require.Len(t, docs, 3)
	require.Greater(t, len(proxy.Finds()), 1)

	proxy.Cut(1)
	docs, err = src.Documents(t.Context(), matches("m1", "m2", "m3"))
	require.Error(t, err)
	require.Nil(t, docs)
	require.NotZero(t, proxy.Hits())
}

func TestADocumentThatWasNotAskedForSpoilsTheAnswer(t *testing.T) {
	t.Parallel()
	proxy, uri := behind(t, m1, bson.M{"_id": "M2"})
	const first = "\x020\x00\x03\x00\x00\x00" // of an array, text of three bytes
	proxy.Rewrite(first+"m2\x00", first+"M2\x00")
	docs, err := connect(t, uri).Documents(t.Context(), matches("m2", "m1"))
	require.ErrorContains(t, err, "was not asked for")
	require.Nil(t, docs)
}

// The driver takes a server that it is directly connected to for the primary.
func TestADirectConnectionToASecondaryIsAnError(t *testing.T) {
	t.Parallel()
	proxy, uri := behind(t, m1)
	src := connect(t, uri)
	const primary = "\x08isWritablePrimary\x00" // a bool of that name, followed by its value
	proxy.Rewrite(primary+"\x01", primary+"\x00")
	require.ErrorContains(t, nothingIsKnown(t, src), "not the primary")
	require.ErrorContains(t, src.Ping(t.Context()), "not the primary")
	require.Empty(t, proxy.Finds())
}

func TestASourceThatIsClosedKnowsNothing(t *testing.T) {
	t.Parallel()
	src := connect(t, mongotest.Database(t).URI)
	require.NoError(t, src.Close(t.Context()))
	require.NoError(t, src.Close(t.Context()))
	require.ErrorIs(t, nothingIsKnown(t, src), mongo.ErrClientDisconnected)
}
