// Package postgres stores durable state in PostgreSQL 14 or newer. It implements [store.Store].
// Several processes may open the same database, each with its own Store.
//
// # The commit
//
// A batch is one round trip. It has at most one statement for each kind of write. The store sends
// all statements in one write, as a pipeline that a single Sync closes, and they form one
// transaction. The first statement moves the fence. If a check fails, it raises an error inside the
// database. So nothing after it can commit, and no second round trip is needed. The checks are: the
// fence is where the batch expects it, a guarded write matches as many rows as were sent, and a key
// is not taken.
//
// What a reply proves:
//
//   - Only the final ReadyForQuery without an error before it proves that the batch is durable. The
//     completion of a statement does not.
//   - An error of severity ERROR proves that nothing was applied, now or later: the server has
//     aborted the transaction. A few codes are exceptions, such as the end of the connection.
//   - Everything else (a lost connection, FATAL, our own timeout) proves nothing. It is
//     [store.Unknown], and the caller resolves it with Refence. We never rely on pgx to decide
//     whether something is safe to retry.
//
// Each lane has its own connection, opened at its first commit. Statements are prepared and planned
// there once. Settings of these connections keep the planner from scanning tables and from hash
// joins. So a plan that is made while a table is empty is still right when the table is full.
// Behind a pooler that shares server connections between transactions, use prepare=off. In this
// mode the store sends every statement with its text and does not change the settings of sessions.
// No timeout of the server ends a commit that hangs. Instead, the node that takes over ends the
// session of the hanging commit.
//
// # Time and leases
//
// Only clock_timestamp() of the server judges leases. If the connection between a node and the
// database server breaks, the server must not keep a lock of that node beyond the lease of the
// node. So commit connections set timeouts for statements, for locks and for a silent peer that are
// shorter than the lease. The transaction of a large or late batch raises its own time limit (see
// store.Batch.Within). If a session of a dead node still holds its fence, the node that takes over
// ends that session.
//
// # What it does not do
//
// The package never reads from a replica, caches no rows, and does not log. It retries only writes
// that are safe to repeat: Renew, FenceNode and Refence.
package postgres
