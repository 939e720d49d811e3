// Package limit decides who may hold one of a bounded number of permits, and how often one may
// begin.
//
// A resource has Numbers: at most so many holders at a time, or so many beginnings per period, or
// both. It is two machines, values with methods without clock, randomness, goroutine or I/O:
//
//   - the Owner, one per resource, leases permits and tokens to places (nodes), and asks for them
//     back when others need them;
//   - a Local, one per resource and place, hands the permits of its block to tasks.
//
// They talk by values (ToOwner, ToPlace): each takes effect exactly once, and in order between two
// ends. Where owner and place are in one process, the one is simply called with what the other
// says; with one place alone everything is leased to it at its first request, and from then on a
// permit costs nothing. An owner that several processes share is a value in the store: a place
// applies what it tells by itself, and finds by its Account what the lease says since it looked
// last.
//
// Permits come back in three ways. A cut (the limit was lowered) takes what nobody holds at once,
// and the rest as holders finish. A turn (others have less than their share, or nothing) takes
// permits as holders finish, before tasks of the same place get them; but a permit for which a task
// waits is used once before it goes, so that it never travels in circles. A spare takes what nobody
// here needs, now or later.
//
// A task that needs several resources waits at the first one, in canonical order, that it cannot
// have; a place keeps the ones before it (pins them) meanwhile. Every chain of such waits climbs
// the order, so there is no cycle and no deadlock between places.
//
// What it promises, referred to by tests:
//
//	L1  Permits of all leases together never exceed the concurrency, however messages are delayed and whatever the limit was before: while a lower limit
//	    is exceeded, nothing is leased. A place has at most as many holders as its block, except for those that it has found there (Hold); each of them keeps
//	    a permit back until it has one.
//	L2  No permit is lost: those at places, under way, and free ones are the concurrency, as soon as a lowered limit is reached.
//	L3  In any stretch of time t at most Burst + Rate·t/Per tokens are spent, by all places together. Arithmetic is in integers and does not drift. Tokens
//	    that are leased and not reported as spent count as not spent: the bucket does not refill their room.
//	L4  Nobody starves: when holders finish and messages arrive, every place that wants a permit gets one.
//	L5  Taking twice is taking once, for the same holder; giving what is not held does nothing.
package limit
