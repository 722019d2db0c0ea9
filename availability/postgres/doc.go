// Package postgres is the durable truth of package availability: a [availability.Source] on
// PostgreSQL 15 or newer.
//
//	src, err := postgres.Open(ctx, "postgres://user:password@host/database")
//	defer src.Close()
//	err = src.Migrate(ctx)
//
// # What is stored
//
// The service's own tables are the truth: mitras, mitra_online_status, mitra_online_logs,
// chat_sessions, auth_sessions, app_config. Triggers keep one row a mitra in mitra_availability, in
// the transaction of each change, whoever makes it. [Source.Migrate] makes what is missing.
//
// # What is guaranteed
//
// A state that is returned is committed, or it is together with what it returns about. Two changes
// of a mitra never have the same version, and the later one has the higher.
//
// A mitra is never given more sessions than it may have: they are counted in their table, and the
// limit is read, under the lock of its state. A session that changes hands is never seen with both
// mitras, or with none.
//
// Writers lock in one order, and do not deadlock with each other. Where they do with others'
// statements, or cannot be serialized with them, they are tried again, five times in all.
//
// # What is not
//
// A writer that is cut off, or out of time, may still have changed everything. To call it again
// does no harm: what stands already is done.
//
// Rows that change without a trigger leave states wrong until [Source.Repair] runs. [Source.Unseen]
// lists how that can happen.
package postgres
