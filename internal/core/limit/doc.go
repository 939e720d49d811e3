// Package limit decides which tasks may hold one of a bounded number of permits, and how often a
// task may start.
//
// A resource has Numbers: a maximum of holders at a time, a maximum of starts per period, or both.
// Two state machines work on it. Both are values with methods, without clock, randomness,
// goroutines or I/O:
//
//   - The Owner, one per resource, leases permits (rights to run) and tokens (rights to start) to
//     places (nodes), and recalls them when other places need them.
//   - A Local, one per resource and place, gives the permits that are leased to the place (its
//     block) to tasks.
//
// They exchange values (ToOwner, ToPlace). Each value takes effect exactly once. Values with the
// same sender and receiver take effect in order. If owner and place are in one process, the process
// passes the messages between them. If there is only one place, the owner leases everything to it
// at the first request. From then on, a permit costs no message. An owner that several processes
// share is a value in the store. A place applies its own messages to that value. The Account of the
// place says what has changed in the lease of the place since the place last looked.
//
// The owner takes permits back from a place in three ways:
//
//   - A cut happens when the limit was lowered. It takes idle permits immediately, and the others
//     when their holders finish.
//   - A turn happens when other places have less than their share. It takes permits when their
//     holders finish, before the waiting tasks of the place get them. If a permit is idle while
//     tasks of the place wait, one of these tasks uses the permit before the permit leaves the
//     place. Otherwise permits could travel between places without any task using them.
//   - A spare happens when other places want further permits and this place does not. It takes a
//     permit as soon as the place has neither a holder nor a waiting task for that permit.
//
// A task that needs several resources takes them in canonical order, and waits at the first one
// that it cannot get. While it waits, its place keeps permits for the earlier resources (it pins
// them). A task only waits for resources that are later in the order than the ones it keeps, so
// places cannot deadlock.
//
// Tests refer to these promises by number:
//
//	L1  The permits of all leases together never exceed the concurrency, however long messages
//	    take. After the limit was lowered, more permits may be leased than it allows; until
//	    enough have come back, the owner leases none. A place has at most as many holders as
//	    permits. The exception is a task that the place finds already running when it starts
//	    (see Local.Hold); the owner keeps one permit back for each such task.
//	L2  No permit is lost. The permits at places, the permits on their way and the free permits
//	    add up to the concurrency, unless more are leased than a lowered limit allows.
//	L3  In any period of length t, all places together spend at most Burst + Rate·t/Per tokens.
//	    The arithmetic uses integers and does not drift. A token that is leased and not
//	    reported as spent still takes room in the bucket.
//	L4  No place starves: when holders finish and messages arrive, every place that wants a
//	    permit gets one.
//	L5  A task that takes a permit twice has one permit. To give back a permit that is not held
//	    changes nothing.
package limit
