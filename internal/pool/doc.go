// Package pool executes tasks for an engine: the worker's side of a queue.
//
// A Pool holds claims and executes as many of them at a time as it has slots, each on a goroutine
// of its own; a pool that holds nothing has no goroutine and no timer. It promises:
//
//   - Every claim that it took ends in one report, or in none if it is not the pool's any more:
//     whatever its handler does, also when that panics, ends its goroutine or never returns.
//   - It beats for all claims at a third of the shortest heartbeat time-out among them, in one
//     call, as long as it holds them: until the report is handed in, also while it drains.
//   - What a task writes (states, lines, streamed items) is told in the order in which it was
//     written, once, and before the report of its attempt.
//   - Under pressure it takes no more than it has: it asks for nothing once a level has reached its
//     high mark, and goes on once it has come down to the low one.
//   - Close takes nothing new, lets what runs come to an end, and gives back what does not, without
//     consuming an attempt.
//
// What tasks are made of (types, payload settings, policies) is not its business; see package
// perdure.
package pool
