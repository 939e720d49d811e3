// Package gate keeps tasks back on a node: it holds the limits and circuit breakers that they have
// to pass, and lets a task through all of them or through none. A dispatcher asks it with Take
// before it hands a task to a worker, and tells it with Give how that ended.
//
// It is a state machine without clock, randomness, goroutine and I/O, used by one goroutine at a
// time. What it has to tell the owners of limits that other nodes share is collected (Out), and
// what they say comes back (Receive): see package ledger. Where the gate is the owner itself,
// nothing is told. In the same way it tells breakers that nodes share how calls have ended and that
// it wants a probe (Asks), and hears how they stand (Adopt, Answer).
//
// A task passes in this order: the breaker must not hold it back; then the limits in their
// canonical order; then the breaker gives its permit. It waits at the first one that refuses, in
// line there, and keeps nothing that another task of this node could use meanwhile; other nodes do
// not get what it has passed (see package limit on pins), so that no two nodes wait for each other.
// Being refused consumes nothing, an attempt least of all.
//
// What it promises, referred to by tests:
//
//	G1  All or nothing: a refused task holds nothing, and a task that was let through holds every limit until it is given back, once.
//	G2  A refusal has a reason that names what refuses, who holds it or until when, and the time to ask again; zero means that Woken will tell.
//	G3  Whoever could pass because of a change is woken: the first in line for each permit that became free, everybody when a breaker or the rules change.
//	    Groups are woken, not tasks: the dispatcher tries tasks of a woken group until one is refused, which puts the whole group where that one waits.
//	G4  Rules may change at any time. Who holds a limit keeps it; whoever asks from then on passes by the new rules. Those who are through count for new limits when they
//	    are told again (Hold).
//
// A task that has asked and is not dispatched any more (it was cancelled, or another node has it)
// must be given back too, so that it leaves the line.
package gate
