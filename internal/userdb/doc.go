// Package userdb keeps two small tables in databases that belong to the user: the outcomes of steps
// that act in a transaction there, and messages that leave with a transaction of ordinary code.
//
// It knows transactions by their shape (Exec, QueryRow, Commit, Rollback), so it links no driver,
// and it speaks two dialects of SQL: PostgreSQL and SQLite. Everything goes through transactions
// that the source begins, with the isolation that the source gives them.
//
// What it promises:
//
//	U1  Of one step, at most one outcome stands, whoever writes it: the row of the outcome is inserted before the step acts, in the same transaction. Whoever
//	    inserts second waits for the first, and then finds the row (the outcome stands) or not (nothing was done).
//	U2  An attempt commits everything it did together with its outcome, or nothing. After a lost answer to a commit the row tells which.
//	U3  An attempt that was forgotten, because its process stood still, does nothing: it may not begin later than a day after the owner of its
//	    run last spoke, by the clock of the database, and its transaction has a maximum age there.
//	U4  An outcome is removed when its run has been closed for a week, so after the last moment at which U3 lets anybody look for it.
//	U5  A message is delivered if and only if the transaction that put it commits, once, in the order of its transaction for each target.
//	U6  Every attempt to deliver a message is noted in its row and committed before it is made. A message whose first attempt is so old
//	    that the receiver may have forgotten it is not delivered again; it stays as a dead letter.
package userdb
