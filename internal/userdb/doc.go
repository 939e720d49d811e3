// Package userdb keeps two small tables in databases that belong to the user. One table has the
// outcomes of steps that act in a transaction there. The other has messages that ordinary code
// sends with its own transaction.
//
// The package knows transactions only by their shape (Exec, QueryRow, Commit, Rollback), so it
// links no driver. It speaks two dialects of SQL: PostgreSQL and SQLite. It does everything in
// transactions that the source begins, with the isolation that the source gives them.
//
// Promises:
//
//	U1  A step has at most one outcome. An attempt inserts the row of the outcome before it
//	    acts, in the same transaction. A second attempt waits for the first. It then finds the
//	    row, which is the outcome, or no row, which means that the first attempt did nothing.
//	U2  An attempt commits everything it did together with its outcome, or nothing. If the
//	    answer to a commit is lost, the row tells which.
//	U3  An attempt that the owner of its run has given up, because its process hangs, does
//	    nothing later. It cannot begin more than a day after it last heard from the owner, by
//	    the clock of the database, and the server limits the age of its transaction.
//	U4  An outcome is removed when its run has been closed for a week. By U3 no attempt can
//	    look for it at that time.
//	U5  A message is delivered if and only if the transaction that put it commits. It takes
//	    effect once. Messages of a transaction to the same target keep their order.
//	U6  Every attempt to deliver a message is recorded in its row and committed before it is
//	    made. A message whose first attempt is so old that the receiver may have forgotten it
//	    is not delivered again. It stays as a dead letter.
package userdb
