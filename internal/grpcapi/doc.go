// Package grpcapi serves the native protocol (perdure.v1) on api.Backend. It authenticates the
// caller, translates requests and replies, and has no rules of its own: those are in the service
// behind it, for every entry point alike.
//
// The tenant of every call is that of the caller's credential. An error becomes a status whose
// detail gives internal/remote the same error back. A panic in a handler ends that call only.
package grpcapi
