// Package limit decides which tasks may hold one of a bounded number of permits, and how often a
// task may begin.
//
// A resource has Numbers: a maximum of holders at a time, a maximum of beginnings per period, or
// both. Two state machines work on it. Both are values with methods, without clock, randomness,
// goroutines or I/O:
//
//   - The Owner, one per resource, leases permits and tokens to places (nodes), and recalls them
//     when other places need them.
//   - A Local, one per resource and place, hands the permits of its block to tasks.
//
// They exchange values (ToOwner, ToPlace). Each value takes effect exactly once, and in order
// between two ends. If owner and place are in one process, each is called with what the other
// returns. A single place gets everything leased at its first request, and from then on a permit
// costs nothing. An owner that several processes share is a value in the store: a place applies its
// own messages to that value, and finds out by its Account what has changed in its lease since it
// last looked.
//
// Permits come back in three ways. A cut, after the limit was lowered, takes idle permits at once
// and the others as their holders finish. A turn, when other places have less than their share,
// takes permits as holders finish, before tasks of the same place get them. But a permit that a
// task waits for is used once before it leaves, so that permits do not travel in circles. A spare
// takes permits that the place does not need, now or later.
//
// A task that needs several resources waits at the first one, in canonical order, that it cannot
// get. Until then its place keeps permits for the earlier ones (it pins them). Every chain of such
// waits goes up in the order, so places cannot deadlock.
//
// Tests refer to these promises by number:
//
//	L1  Permits of all leases together never exceed the concurrency, however messages are
//	    delayed and whatever the limit was before: while a lowered limit is exceeded, nothing
//	    is leased. A place has at most as many holders as its block. The exception are holders
//	    that it found there (Hold); the owner keeps one permit back for each of them.
//	L2  No permit is lost: permits at places, on their way, and free ones add up to the
//	    concurrency, as soon as a lowered limit is reached.
//	L3  In any period of length t, all places together spend at most Burst + Rate·t/Per tokens.
//	    Arithmetic is in integers and does not drift. Tokens that are leased and not reported as
//	    spent count as not spent: the bucket does not refill their room.
//	L4  No place starves: when holders finish and messages arrive, every place that wants a
//	    permit gets one.
//	L5  A holder that takes twice has one permit; giving back a permit that is not held does
//	    nothing.
package limit
