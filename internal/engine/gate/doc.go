// Package gate decides which tasks of a node may start. It holds the limits and the circuit
// breakers that tasks must pass, and it lets a task through all of them or through none. The
// dispatcher, which is the code that chooses the next task for a worker (package queue), calls Take
// before it hands a task to a worker, and Give when the task ends.
//
// The gate is a state machine without a clock, randomness, goroutines or I/O. One goroutine uses it
// at a time. Limits may be shared with other nodes; package ledger describes how. The gate collects
// its messages to the owners of shared limits (Out) and accepts their replies (Receive). For limits
// that the gate owns itself it sends no messages. Shared breakers work the same way: the gate
// reports how calls ended and asks for probes (Asks), and learns the state of the breaker (Adopt,
// Answer).
//
// A task passes in this order. First the gate asks the breaker, which must not hold the task back.
// Then it tries the limits in their canonical order. Last, the breaker grants a permit. The task
// waits in the line of the first limit that refuses. While it waits, it keeps nothing that another
// task of this node could use. But other nodes cannot take the permits of limits that the task has
// already passed (see package limit on pins), so two nodes cannot deadlock. A refusal consumes
// nothing, in particular no attempt.
//
// The gate promises the following; tests refer to the numbers:
//
//	G1  All or nothing: a refused task holds nothing. An admitted task holds all of its
//	    limits until the dispatcher calls Give for it.
//	G2  A refusal has a reason. The reason names the limit or the breaker that refuses. It
//	    also says which tasks hold the limit, which rate the limit has, or until when the
//	    breaker is open. A refusal also has a time to ask again. A zero time means that
//	    TakeWoken will return the group. There is one exception: if no rule defines the
//	    limit, the dispatcher must ask again when the rules change.
//	G3  A change wakes the tasks that it may let through. These are the first task in the
//	    line for each permit that became free, and every waiting task when a breaker or
//	    the rules change. The gate wakes groups, not tasks: the dispatcher tries tasks of
//	    a woken group until one is refused. Then the whole group waits where that task
//	    waits.
//	G4  Rules may change at any time. A task keeps the limits that it holds. Later tasks
//	    must pass the new rules. Admitted tasks hold new limits once the dispatcher calls
//	    Hold for them again.
//
// The dispatcher must also give back a task that it has asked for and will not start, because the
// task was cancelled or another node has it. Otherwise the task would stay in the line.
package gate
