// Package pgproxy is a TCP proxy between a client and PostgreSQL that understands the protocol.
// Tests use it to break the network at the worst moment.
//
//	proxy := pgproxy.New(t, pg.Addr())
//	pool, err := pgxpool.New(ctx, proxy.URL(url))
//
//	// Strike the third commit from now.
//	lost := proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply, Nth: 3})
//	…
//	<-lost.Done()
//	lost.Reply().Committed() // what the client could not learn
//
// A [Rule] waits for the nth request that matches it, and strikes once: it applies its fault to
// that request. A *request* is everything that the server answers with one ReadyForQuery: a simple
// query, or all messages of the extended protocol up to a Sync. So the proxy also catches a
// transaction that commits implicitly at the Sync of a pipelined batch, without a COMMIT statement.
// See [Request.Commits].
//
// Without rules the proxy forwards faithfully, message by message: the bytes, a reset as a reset,
// an orderly end as an orderly end, and requests to cancel. It refuses TLS and GSS encryption, so
// clients must not require them ([Proxy.URL] sets sslmode=disable).
//
// Promises:
//
//   - After [Reset], [DropReply], [Orphan] or [Hang] has struck a request, nothing that the client
//     sends on that connection reaches the server. A request to cancel the struck request, which
//     drivers send when a connection breaks, does not reach the server either.
//   - The proxy forwards a request only when it is complete, so a request that was reset before
//     that has left no trace on the server.
//   - Rules count and match one request at a time, over all connections, in the order in which
//     requests became complete. With one connection the outcome is deterministic.
//
// Limits: the proxy does not detect an explicit COMMIT that a client sends with Flush instead of
// Sync, and it parses only the first words of each SQL statement.
package pgproxy
