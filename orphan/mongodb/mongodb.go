package mongodb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/rollcall-redis/rollcall/orphan"
)

const (
	defaultTimeout = 5 * time.Second
	connections    = 4
)

var _ orphan.Source = (*Source)(nil)

// An Option is a setting of a Source.
type Option func(*Source)

// Timeout bounds each find, with the wait for a server. Default 5 s, also if d is not positive.
func Timeout(d time.Duration) Option { return func(s *Source) { s.timeout = d } }

// A Source reads one database. It is safe for concurrent use.
type Source struct {
	client  *mongo.Client
	db      *mongo.Database
	direct  bool
	timeout time.Duration
}

// Connect creates a Source for the database in the URI. It does not wait for the server; see
// [Source.Ping]. With mongodb+srv:// it looks up the host in the DNS. Errors do not contain the
// URI, which may hold a password.
func Connect(uri string, opts ...Option) (*Source, error) {
	parsed, err := connstring.ParseAndValidate(uri)
	if err != nil {
		return nil, badURI(err)
	}
	if parsed.Database == "" {
		return nil, errors.New("mongodb: the URI names no database: it has to end as in " +
			"mongodb://host:27017/DATABASE, or mongodb://host:27017/DATABASE?authSource=admin")
	}
	settings := clientOptions(uri)
	client, err := mongo.Connect(settings)
	if err != nil {
		return nil, badURI(err)
	}
	s := &Source{
		client: client,
		db:     client.Database(parsed.Database),
		direct: settings.Direct != nil && *settings.Direct,
	}
	for _, set := range opts {
		set(s)
	}
	if s.timeout <= 0 {
		s.timeout = defaultTimeout
	}
	return s, nil
}

// clientOptions overrides those options that the guarantees depend on.
func clientOptions(uri string) *options.ClientOptions {
	o := options.Client().ApplyURI(uri).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetMaxPoolSize(connections).
		SetServerMonitoringMode(options.ServerMonitoringModePoll) // saves a connection per server
	if o.AppName == nil {
		o.SetAppName("rollcall")
	}
	return o
}

// badURI replaces the driver's error, which quotes parts of the URI.
func badURI(err error) error {
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return fmt.Errorf("mongodb: the URI's host cannot be looked up in the DNS: %s", dns.Err)
	}
	return errors.New("mongodb: the URI is not valid (it is not shown, as it may hold a password): it has to " +
		"look like mongodb://user:password@host:27017/database, special characters of user and password " +
		"written as %XX, and options of the driver after a '?'")
}

// Close waits for running finds until ctx ends, and then aborts them.
func (s *Source) Close(ctx context.Context) error {
	if err := s.client.Disconnect(ctx); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
		return fmt.Errorf("mongodb: close: %w", err)
	}
	return nil
}

// Ping reports whether the primary answers. It does not check the right to read.
func (s *Source) Ping(ctx context.Context) error {
	return s.within(ctx, "ping", func(ctx context.Context) error {
		if err := s.primary(ctx); err != nil {
			return err
		}
		return s.client.Ping(ctx, readpref.Primary())
	})
}

// Empty reports whether a collection has no documents or does not exist. It relies on no
// statistics.
func (s *Source) Empty(ctx context.Context, collection string) (empty bool, err error) {
	err = s.within(ctx, collection, func(ctx context.Context) error {
		if err := s.primary(ctx); err != nil {
			return err
		}
		onlyID := options.FindOne().SetProjection(bson.M{idField: 1})
		err := s.db.Collection(collection).FindOne(ctx, bson.M{}, onlyID).Err()
		if errors.Is(err, mongo.ErrNoDocuments) {
			empty = true
			return nil
		}
		return err
	})
	return empty && err == nil, err
}

// within bounds f, and adds advice for the operator to its error.
func (s *Source) within(ctx context.Context, what string, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	until, _ := bounded.Deadline() // the caller's may be earlier
	allowed := time.Until(until).Round(time.Millisecond)
	err := f(bounded)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // not the server's fault
		return fmt.Errorf("mongodb: %s: %w", what, err)
	}
	hint := ""
	var refused mongo.CommandError
	switch {
	case errors.As(err, &refused) && refused.Code == codeUnauthorized:
		hint = "the user needs role read on this database: "
	case errors.As(err, &refused) && refused.Code == codeAuthenticationFailed:
		hint = "user, password or authSource of the URI are wrong: "
	case mongo.IsTimeout(err):
		hint = fmt.Sprintf("no answer within %s, the server is slow or cannot be reached: ", allowed)
	case mongo.IsNetworkError(err):
		hint = "the connection broke: "
	}
	return fmt.Errorf("mongodb: %s: %s%w", what, hint, err)
}

const (
	codeUnauthorized         = 13
	codeAuthenticationFailed = 18
)

var errNotPrimary = errors.New("this server is not the primary, and directConnection=true keeps the driver " +
	"from looking for it: remove that from the URI, or name the primary")

// primary checks direct connections, where the driver treats any server as the primary.
func (s *Source) primary(ctx context.Context) error {
	if !s.direct {
		return nil
	}
	var hello struct {
		Primary bool `bson:"isWritablePrimary"`
	}
	err := s.client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	if err == nil && !hello.Primary {
		err = errNotPrimary
	}
	return err
}

const (
	batch    = 500 // ids per find
	longText = 64 << 10
	idField  = "_id"
)

var errNotAsked = errors.New("the answer has a document that was not asked for: " +
	"does the collection ignore case (a collation)?")

// Documents returns the documents of q that exist, with the fields that they have: text as string,
// whole numbers as int64, others as float64, bool, dates as time.Time in UTC. Any other value, and
// text over 64 KiB, is returned as its [bson.Type], which bounds the result.
//
// If q has ObjectIDs, any other id is an error, and nothing is read. They are not case sensitive,
// and returned as given. A dotted field leads through documents; one inside an array is missing.
// The finds of one question have no order and no common snapshot.
func (s *Source) Documents(ctx context.Context, q orphan.Query) (map[string]orphan.Document, error) {
	keys := make([]any, len(q.IDs)) // string or bson.ObjectID
	for i, id := range q.IDs {
		keys[i] = id
		if q.ObjectIDs {
			oid, err := bson.ObjectIDFromHex(id)
			if err != nil {
				return nil, fmt.Errorf("mongodb: %s: %q is not an ObjectID", q.Collection, id)
			}
			keys[i] = oid
		}
	}
	found := make(map[any]orphan.Document)
	for some := range slices.Chunk(keys, batch) {
		err := s.within(ctx, q.Collection, func(ctx context.Context) error {
			return s.find(ctx, q, some, found)
		})
		if err != nil {
			return nil, err
		}
	}
	docs := make(map[string]orphan.Document, len(found))
	for i, id := range q.IDs {
		if doc, ok := found[keys[i]]; ok {
			docs[id] = doc
		}
	}
	return docs, nil
}

func (s *Source) find(ctx context.Context, q orphan.Query, keys []any, found map[any]orphan.Document) error {
	if err := s.primary(ctx); err != nil {
		return err
	}
	fields := bson.M{idField: 1}
	for _, f := range q.Fields {
		fields[f] = 1
	}
	asked := make(map[any]bool, len(keys))
	for _, key := range keys {
		asked[key] = true
	}
	cursor, err := s.db.Collection(q.Collection).Find(ctx, bson.M{idField: bson.M{"$in": keys}},
		options.Find().SetProjection(fields).SetBatchSize(batch+1)) // a full batch would cost a second round trip
	if err != nil {
		return err
	}
	defer cursor.Close(ctx) // after an error the server drops the cursor later
	for cursor.Next(ctx) {
		raw := cursor.Current
		if err := raw.Validate(); err != nil {
			return fmt.Errorf("the answer is damaged: %w", err)
		}
		key := value(raw.Lookup(idField))
		if oid, ok := raw.Lookup(idField).ObjectIDOK(); ok {
			key = oid
		}
		if !asked[key] {
			return errNotAsked
		}
		doc := make(orphan.Document, len(q.Fields))
		for _, f := range q.Fields {
			if v, err := raw.LookupErr(strings.Split(f, ".")...); err == nil {
				doc[f] = value(v)
			}
		}
		found[key] = doc
	}
	return cursor.Err()
}

func value(v bson.RawValue) any {
	switch v.Type {
	case bson.TypeString:
		if text := v.StringValue(); len(text) <= longText {
			return text
		}
	case bson.TypeInt32:
		return int64(v.Int32())
	case bson.TypeInt64:
		return v.Int64()
	case bson.TypeDouble:
		return v.Double()
	case bson.TypeBoolean:
		return v.Boolean()
	case bson.TypeDateTime:
		return v.Time().UTC()
	}
	return v.Type
}
