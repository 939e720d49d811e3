// Package entity executes calls of entities and services for an engine. It is the part that runs in
// the worker.
//
// The engine hands a Worker calls of one entity at a time, together with the state. Such a set of
// calls is a hand-over. The worker runs the calls of a hand-over one after the other on a
// goroutine. It runs as many hand-overs at the same time as it has slots; further hand-overs wait
// in line. A worker without hand-overs has no goroutine and no timer. A worker promises:
//
//   - A call is a transaction over the state and the messages that it sends. If it fails (by an
//     error, a panic, the end of its goroutine, a state that cannot be written), the state does not
//     change and no message is sent. The next call gets the state after the last successful call.
//   - Every hand-over ends in one report, even while the worker closes. Calls that did not run are
//     not in the report, so the engine hands them out again.
//   - A call fails with an error that names the cause, and changes nothing, if this build does not
//     have the operation or cannot read the state.
//   - The report has a new state only if the encoded state has changed.
//   - A call may start a stream of items for its caller. The code of the stream runs in parallel
//     with the calls, takes no slot, and waits while the caller is behind.
//
// Package perdure decides what states and inputs consist of (types, payload settings, size limits).
// The engine provides durability: a hand-over takes effect when the engine commits the report. If a
// hand-over is lost, the engine repeats it.
package entity
