// Package pgproxy is a TCP proxy between a client and PostgreSQL that understands the protocol, for
// tests of what happens when the network fails at the worst moment.
//
//	proxy := pgproxy.New(t, pg.Addr())
//	pool, err := pgxpool.New(ctx, proxy.URL(url))
//
//	lost := proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply, Nth: 3}) // the third commit from now
//	…
//	<-lost.Done()
//	lost.Reply().Committed() // what the client could not learn
//
// A [Rule] waits for the nth request that matches and strikes once. A *request* is what the server
// answers with one ReadyForQuery: a simple query, or everything of the extended protocol up to a
// Sync. So a transaction that commits implicitly at the Sync of a pipelined batch, without any
// COMMIT statement, is caught like one that commits explicitly; see [Request.Commits].
//
// Without rules, it forwards faithfully, message by message: the bytes, a reset as a reset, an
// orderly end as one, and requests to cancel. It answers requests for TLS and GSS encryption with
// "no", so clients must not insist on them ([Proxy.URL] sets sslmode=disable).
//
// What it promises:
//
//   - Nothing that a client sends on a connection behind a request that was struck by [Reset],
//     [DropReply], [Orphan] or [Hang] reaches the server; nor does a request to cancel it, which
//     drivers send when a connection breaks.
//   - A request is forwarded only when it is complete, so one that was reset before has left no
//     trace on the server.
//   - Rules count and match one request at a time, over all connections, in the order in which
//     requests became complete. With one connection the outcome is deterministic.
//
// What it does not do: it does not look at an explicit COMMIT that was sent ahead with Flush rather
// than Sync; it does not parse SQL beyond the first words of each statement.
package pgproxy
