// Package core decides what an input does to an execution. Every decision is a pure function:
//
//	state + input → new state + rows to write + messages to send
//
// The package uses no clock, no randomness, no goroutine and no I/O; a test checks its imports. The
// caller passes in the time, fresh ids and everything it has read from a store. That makes the
// package testable exhaustively, by fuzzing and by simulation from a seed.
//
// Tests refer to the following invariants by number. The numbers E1 … and L1 … in tests refer to
// the invariants in internal/archtest/testdata/invariants.txt.
//
//	I1  Positions of events are 0, 1, 2, … without a gap; times never decrease.
//	I2  Nothing is appended to a closed run.
//	I3  The state depends only on the history and the open timers: Recover computes from them
//	    the same state that Apply has left behind.
//	I4  Each timer fires at most once, and never after it was stopped or withdrawn.
//	I5  A step starts its child once, and the outcome of the child is recorded at most once.
//	I6  The first settlement of a promise wins; later ones are refused.
//	I7  Every accepted signal is in the history of exactly one run that can still take it, in
//	    the order of acceptance. When a run continues as new, the next run gets the signals
//	    that the code of the ended run has not taken.
//	I8  The commit that closes a run stops the timers of the run, sends the outcome to its
//	    parent and its watchers, and cancels its children if their policy says so.
//	I9  A worker may run code ahead, before it has seen all events. If it has missed an event,
//	    only the facts of its turn are recorded (such as outcomes of steps), not what the code
//	    decided after them.
//	I10 A refused input writes nothing. If a step sent the input, that step gets a message with
//	    the refusal.
//	I11 Every message that a step sent is answered once, accepted or refused, and the answer is
//	    recorded once, unless the run of the step is over by then or has withdrawn the step.
//	I12 Every accepted update is answered once: by the code, by the end of the last run, or, if
//	    the code has begun the update, by the end of the run that has begun it. The next run
//	    takes over updates that were not begun. If a client repeats a request that has no answer
//	    yet, the repetition waits for the same answer, whichever run it names. It is neither
//	    accepted again nor refused.
//	I13 State outlives continue-as-new: the next run begins with the last values.
//	I14 A paused run stays parked until it is resumed, even when it continues as new. Inputs that
//	    arrive while it is paused are recorded.
//	I15 A run that begins with a past has the events of that past, with the same positions and
//	    times. It waits for everything that the run of the past waited for: signals and promises
//	    are in the past, children are watched again, and the code asks for its timers again.
//	I16 Only closed runs are deleted.
//	I17 A section requests its entities one at a time, in an order that is the same for all
//	    sections, and each grant is recorded once. The decision that ends the section or its run
//	    sends a release to every entity that the section has asked. If a grant arrives after
//	    that, the core sends another release.
//	I18 The code of a run does not begin before the start time of the run. Until then the run
//	    stays parked like a paused one, and a cancel ends it immediately.
//	I19 A run that fails and will be tried again ends with the status continued. The next run,
//	    which is the next attempt, begins with the input of the failed run and with the messages
//	    that the code of the failed run has not taken. Waiting callers get an answer only when
//	    the last attempt has ended. An execution with a time-out ends when the time-out is over,
//	    whichever run is current.
package core
