package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/rollcall-redis/rollcall/orphan"
)

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
