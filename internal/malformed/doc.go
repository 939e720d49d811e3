// Package malformed makes gRPC calls that no client makes: with bytes that are not a message, with
// messages of extreme values, and with messages that were damaged on the way. The tests of every
// gRPC API use it.
package malformed
