// Package proof keeps the evidence of a sweep that ages: since when something has been condemned
// without a gap. A pass opens the sweep's Book, records what each look found, and ends it:
//
//	book, err := proof.Open(ctx, p, proof.Options{Marks: ..., State: ..., Basis: ..., Apart: grace})
//	if lost != "" {
//		return book.End(ctx, lost)            // what the evidence relies on went away
//	}
//	err = book.Look(ctx, found)               // page by page; what lives loses its mark at once
//	err = book.Looked(ctx, full)              // marks the newly condemned; a HeldError if too many are
//	if since, ok := book.Since(name); ok && since >= grace { ... }
//
// # One chain, one number
//
// Marks belong to a chain of looks, whose number the sweep's state and each mark have. A mark of
// another chain counts for nothing, until a look marks the thing anew. A new chain begins if
//
//   - the basis has changed: the start of the witness's listening, or what Options.Basis names,
//   - the last pass did not end with Looked: each pass takes the time of the last look away when it
//     begins, and only Looked writes another one,
//   - that look is too long ago (above Apart + max(Apart, 1s)), or in the future,
//   - the server's clock moved otherwise than this process's own,
//   - the sweep calls End.
//
// Numbers only grow, so that a write that lands late can end a chain, and never revive one.
//
// # Laws
//
//   - A mark never outlives a gap, a hold, or a lost basis.
//   - Nothing ripens earlier than its grace after the first look of its chain.
//   - A mass failure holds once: what it condemned is marked then, and no longer new.
//
// Every write is fenced by the term's epoch: a leader that was paused cannot overwrite its
// successor's notes. Lua is for the guarded body that deletes: there the evidence must still hold.
package proof
