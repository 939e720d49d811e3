// Package breaker decides whether calls to a failing service may pass: a circuit breaker that all
// callers of the service share.
//
// A Breaker is a value with methods: no clock, no randomness, no goroutine, no I/O. If several
// nodes share a breaker, the breaker is a value in the store. That value owns the state. Each node
// decides with a View, which is the breaker as the node last saw it, and applies the messages of
// the view to the owner by compare-and-set.
//
//	closed     Calls pass. Enough failures in the window open the breaker.
//	open       Nothing passes before the reset time-out has passed.
//	half-open  Up to Probes calls at a time pass, as probes. One failed probe opens the breaker
//	           again. As many successful probes as Successes says close it.
//
// In every state, a breaker may also be held until some time, because an operator pauses it, or
// because the called service sent a Retry-After. A hold does not change the state. When it is over,
// the breaker continues as before.
//
// Tests refer to these promises by number:
//
//	B1  A closed breaker opens at exactly Failures failures that are younger than Window,
//	    whichever places (nodes) report them, and never before. A ratio can open it only when
//	    at least Calls outcomes are in the window. The ratio forgets an outcome when it is
//	    between 19/20 of Window and Window old.
//	B2  While it is open, nothing passes before the time when it opened plus Reset. While it is
//	    held, nothing passes before the end of the hold.
//	B3  While it is half-open, at most Probes calls with a valid lease are in flight.
//	B4  A permit counts once, only in its generation (the time between two changes of the
//	    state), and a probe only until its lease ends. So if a call began before the breaker
//	    opened, its outcome neither opens nor closes the breaker. An outcome that is neither
//	    success nor failure (cancelled, lost, given back) does not count, but it frees the slot
//	    of a probe.
//	B5  Every change that must survive is reported to the caller: the state, holds, and slots of
//	    probes. The counts of a closed breaker are not reported: a new owner begins a new window.
//	B6  A refusal is not an outcome. The caller gets the time when it may ask again, and no
//	    permit is used up.
package breaker
