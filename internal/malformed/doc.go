// Package malformed makes gRPC calls that no client makes: bytes that are no message, messages of
// extreme values, and messages that were damaged on the way. Tests of every door use it.
package malformed
