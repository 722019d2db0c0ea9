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
// chat_sessions, auth_sessions, app_config. Triggers keep one row per mitra in
// mitra_availability, in the transaction of each change, whoever makes it.
//
// # What is guaranteed
//
// A returned state is committed, at the latest with the change. No two changes of a mitra have the
// same version, and the later one has the higher.
//
// A mitra never gets more sessions than allowed: they are counted in their table, and the limit
// is read, under the lock of the mitra's state. Nobody sees a session that changes hands with
// both mitras, or with neither.
//
// Writers lock in one order and do not deadlock with each other. If they deadlock with other
// statements, or cannot be serialized with them, they are tried again, up to five times in all.
//
// # What is not guaranteed
//
// A writer that is cut off, or runs out of time, may still have changed everything. Calling it
// again does no harm. Rows that change without a trigger leave states wrong until [Source.Repair]
// runs. [Source.Unseen] lists how that can happen.
package postgres
