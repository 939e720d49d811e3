// Package core decides. What happens to an execution is a function of its state and one input:
//
//	state + input → state + what to write + whom to tell
//
// There is no clock, no randomness, no goroutine and no I/O in it (a test proves that); the time,
// fresh ids and everything read from a store come in as values. So it can be tested exhaustively,
// fuzzed and simulated with a seed.
//
// Invariants, which tests refer to by number:
//
//	I1  Positions of events are 0, 1, 2, … without a gap; times never decrease.
//	I2  Nothing is appended to a closed run.
//	I3  The state is the fold of the history and the open timers: Recover gives the state that Apply left behind.
//	I4  Each timer fires at most once, and never after it was stopped or withdrawn.
//	I5  Each child is asked for once per step, and its outcome is recorded at most once.
//	I6  The first settlement of a promise wins; later ones are refused.
//	I7  Every accepted signal is in the history of exactly one run that can still take it, in the order of acceptance:
//	    what a run has not taken when it continues as new is carried to the next.
//	I8  The commit that closes a run stops its timers, tells its parent and watchers, and cancels its children by policy.
//	I9  Of a turn that ran ahead of news, only the facts are recorded.
//	I10 A refused input writes nothing. Only the step that sent it, if it was one, is told by a message.
//	I11 Every message that a step sent is answered once, taken or refused, and the answer is recorded once, unless the run of the step
//	    is over by then or has withdrawn the step.
//	I12 Every accepted update is answered once: by the code, by the end of the last run, or, when the code had begun it, by the end of its
//	    run. What was not begun is carried to the next run. A request that waits for its answer is neither accepted a second
//	    time nor refused, whichever run it names.
//	I13 State outlives continue-as-new: the next run begins with the last values.
//	I14 A paused run stays parked until it is resumed, also when it continues as new, and records what comes in meanwhile.
//	I15 A run that begins with a past has its events at their positions and with their times; whatever its source still waited for, it
//	    waits for too: signals and promises are in the past, children are watched again, timers are asked for by the code.
//	I16 Only closed runs are deleted.
//	I17 A section asks for its entities one after the other, in an order that is the same for all, and each grant is recorded once. The decision that ends it, or its
//	    run, tells every entity that was asked; a grant that comes later is given back.
//	I18 The code of a run does not begin before its start time. Such a run stays parked like a paused one, and a cancel ends it at once.
//	I19 A run that fails and is repeated ends as continued, and the next attempt begins with its input and with what its code has not taken. Nobody who waits is told
//	    before the last attempt has ended. An execution with a time-out ends by then, whichever run it is at.
package core
