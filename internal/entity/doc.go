// Package entity executes calls of entities and services for an engine: the worker's side of them.
//
// A Worker is handed calls of one entity at a time, with its state, and makes them one after the
// other on a goroutine of its own, so many hand-overs at once as it has slots; others wait in line.
// A worker that was handed nothing has no goroutine and no timer. It promises:
//
//   - A call is a transaction over the state and the messages that it sends: one that fails,
//     whatever its code does (an error, a panic, the end of its goroutine, a state that cannot be
//     written), leaves both as if it had not been made, and the next one sees what the last success
//     has left.
//   - Every hand-over ends in one report, also while the worker closes: calls that were not made
//     are left out of it, so that somebody else makes them.
//   - A call of something that this build does not have, and a state that it cannot read, are
//     answered with a failure that says so; nothing is changed.
//   - The report tells of another state only when the encoded state is another one.
//
// What states and inputs are made of (types, payload settings, limits of size) is not its business;
// see package perdure. Nor is durability: nothing of a hand-over has happened before the engine has
// committed the report, and one that is lost is made again.
package entity
