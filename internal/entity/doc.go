// Package entity executes calls of entities and services for an engine. It is the worker's side of
// them.
//
// The engine hands a Worker calls of one entity at a time, together with the state. The worker
// makes them one after the other on a goroutine. It runs as many hand-overs at once as it has
// slots; others wait in line. A worker without hand-overs has no goroutine and no timer. It
// promises:
//
//   - A call is a transaction over the state and the messages that it sends. If it fails (by an
//     error, a panic, the end of its goroutine, a state that cannot be written), both stay as if it
//     had not been made, and the next call sees the state that the last success has left.
//   - Every hand-over ends in one report, also while the worker closes. Calls that were not made
//     are not in the report, so that the engine hands them out again.
//   - A call of an operation that this build does not have, or on a state that it cannot read,
//     fails with an error that says so, and changes nothing.
//   - The report has a new state only if the encoded state has changed.
//   - A call may begin a stream of items for its caller. The code of the stream runs in parallel
//     with the calls, takes no slot, and waits while the caller is behind.
//
// Package perdure decides what states and inputs consist of (types, payload settings, limits of
// size). Durability is the engine's task: a hand-over takes effect when the engine commits the
// report, and a hand-over that is lost is made again.
package entity
