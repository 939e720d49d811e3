// Package peerlink connects the live nodes of a cluster directly, without the store.
//
// Two nodes share one connection. It carries requests with replies, and notes without replies, in
// both directions. The package knows nothing about their contents.
//
// It promises little, because the store has all data and remains the fallback:
//
//   - A request or a note arrives at most once. Requests and notes on one connection arrive in the
//     order in which they were sent.
//   - A caller whose connection breaks gets ErrLost: the other node may or may not have the
//     request. ErrUnsent means that the other node does not have it.
//   - Nothing survives a connection. A caller that sends a request again names the connection that
//     carried it first (model.Message.Linked), so that the owner recognizes the copy.
//
// Identity needs no configuration. A process generates a key pair when it starts, and its row in
// the store has its address and the fingerprint of its certificate. Both sides of a connection
// check the certificate of the other against that row. So a process that cannot write to the
// database cannot take part.
//
// The node with the lower id dials. So two nodes never have two connections.
package peerlink
