// Package postgres keeps durable state in PostgreSQL 14 or newer. It implements [store.Store];
// several processes may open the same database, each with its own Store.
//
// # The commit
//
// A batch is one round trip: the statements of the batch, one per table that it touches, go out in
// one write as a pipeline that a single Sync closes, and form one transaction. The first statement
// moves the fence. Whatever must not happen raises inside of the database, so that nothing behind
// it can commit and no second look is needed: a fence that does not stand where the batch expects
// it, a guarded write that matches another number of rows than were sent, a key that is taken.
//
// What a reply proves:
//
//   - Only the final ReadyForQuery without an error before it proves that the batch is durable. The
//     completion of a statement does not.
//   - An error of severity ERROR proves that nothing was applied, now or later: the server has
//     aborted the transaction.
//   - Everything else (a lost connection, FATAL, a timeout of ours) proves nothing. It is
//     [store.Unknown], and the caller resolves it with Refence. pgx's opinion on whether something
//     is safe to retry is never asked.
//
// Each lane has a connection of its own, opened at its first commit. Statements are prepared there
// once and planned once: the planner is told not to scan tables or to hash-join on these
// connections, so that a plan which is made while a table is empty is the plan that is right when
// it is full. Behind a pooler that shares server connections between transactions, prepare=off
// sends every statement with its text and leaves the settings of sessions alone; then no timeout of
// the server ends a commit that hangs, and takeover ends its session instead.
//
// # Time and leases
//
// Leases are judged by clock_timestamp() of the server alone. A server that is cut off from us must
// not keep a lock of ours beyond the lease: commit connections set timeouts for statements, for
// locks and for a silent peer below it. Takeover ends the session of a node that holds on to its
// fence nevertheless.
//
// # What it does not do
//
// It never reads from a replica, keeps no state between calls but connections, retries no write,
// and does not log.
package postgres
