// Package wire translates between the messages of the native protocol (api/perdure/v1) and our
// values. Both ends of a connection use it: internal/grpcapi on the server, internal/remote in
// programs that dial one. It has no rules of its own.
//
// Functions that build a message are named after the message. Functions that read one begin with
// Read. They return an Invalid error for a message that does not make sense, and never panic:
// messages come from strangers.
//
// Addresses travel without their tenant. The reader adds the tenant of the connection.
package wire
