// Package wire translates between the messages of the native protocol (api/perdure/v1) and the
// values of internal/model and internal/api. Both ends of a connection use it: internal/grpcapi on
// the server, and internal/remote in programs that connect to a server. It has no rules of its own.
//
// Functions that build a message are named after the message. Functions that read a message begin
// with Read. They return an Invalid error for a message that does not make sense. They never panic,
// because messages come from programs that we do not control.
//
// Addresses travel without their tenant. The reader adds the tenant of the connection.
package wire
