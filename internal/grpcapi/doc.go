// Package grpcapi serves the native protocol (perdure.v1) on api.Backend. It authenticates the
// caller, and translates requests and replies. It has no rules of its own. The rules are in the
// service behind it, which all entry points share.
//
// The tenant of every call is that of the caller's credential. An error becomes a status with a
// detail, from which internal/remote rebuilds the same error. A panic in a handler ends that call
// only.
package grpcapi
