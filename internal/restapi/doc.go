// Package restapi serves the engine over HTTP: JSON under /v1, described by an OpenAPI 3.1 document
// that is generated from the code, and changes as server-sent events.
//
// An operation translates its request into a call of package api and the reply into JSON. It has no
// rules of its own: the service behind api checks every request, as it does for gRPC. The server
// identifies the caller and asks the authorizer before it reads the body of a request.
//
// Errors are problems as in RFC 9457, from the one table of error kinds in problem.go. Lists have
// cursors. A request with an Idempotency-Key takes effect once, even if the client repeats it.
package restapi
