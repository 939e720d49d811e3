// Package userdb keeps two small tables in databases that belong to the user. One table has the
// outcomes of steps whose work is a transaction in that database. The other table is an outbox. It
// has messages that ordinary code sends with its own transaction.
//
// The package uses transactions through an interface (Exec, QueryRow, Commit, Rollback), so it does
// not import a driver. It speaks two dialects of SQL: PostgreSQL and SQLite. A Source begins all
// transactions, and decides their isolation level.
//
// Promises:
//
//	U1  A step has at most one outcome. An attempt inserts the row of the outcome before it
//	    acts, in the same transaction. A second attempt waits for the first. It then finds the
//	    row, which is the outcome, or no row, which means that the first attempt did nothing.
//	U2  An attempt commits everything it did together with its outcome, or nothing. If the
//	    answer to a commit is lost, the row shows whether the commit succeeded.
//	U3  If the process of an attempt hangs, the owner of the run may give the attempt up. From
//	    then on the attempt has no effect: it cannot begin more than a day after it last heard
//	    from the owner, by the clock of the database. A PostgreSQL server ends its transaction
//	    when it has been idle for too long (since version 17 also when it is too old). On
//	    SQLite no other process can write while the transaction is open, so the owner has to
//	    wait for its end.
//	U4  An outcome is removed when its run has been closed for a week. By U3 no attempt can
//	    look for it at that time.
//	U5  A message is delivered if and only if the transaction that put it commits. It takes
//	    effect once. Messages of a transaction to the same target keep their order.
//	U6  Before the relay tries to deliver a message, it records the attempt in the row of the
//	    message and commits that. If the first attempt is so old that the receiver may have
//	    forgotten the message, the relay does not deliver the message again. The message stays
//	    as a dead letter.
package userdb
