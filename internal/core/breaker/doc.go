// Package breaker decides whether calls to something that fails may go on: a circuit breaker,
// shared by everybody who calls the same thing.
//
// It is a value with methods: no clock, no randomness, no goroutine, no I/O. Where several nodes
// share it, it is a value in the store: each acts on a View of it, and applies what the view has to
// tell to the breaker by compare-and-set.
//
//	closed     calls pass. Failures in the window are counted; enough of them open it.
//	open       nothing passes before the reset time-out has passed.
//	half-open  up to Probes calls at a time pass. One failure opens it again; Successes successes close it.
//
// Beside its state, a breaker may be held until a time: by somebody who pauses it, or because the
// other side said when to come again (Retry-After). A hold changes no state: when it is over, the
// breaker goes on as it was.
//
// What it promises, referred to by tests:
//
//	B1  From closed, exactly Failures failures open it whose age is below Window, whoever reports them; fewer never do. A ratio opens it when at
//	    least Calls outcomes are in the window, and counts outcomes until they are between 19/20 of Window and Window old.
//	B2  While open, nothing passes before the time it was opened plus Reset; while it is held, nothing passes before the end of the hold.
//	B3  Half-open, at most Probes calls are under way whose lease has not ended.
//	B4  A permit counts only in the generation (the time between two changes of the state) that it was given in, once, and a probe only until its
//	    lease ends. So late outcomes, of calls from before it opened, neither open nor close it. An outcome that is neither success nor failure (cancelled, lost, given
//	    back) counts for nothing, but it frees the slot of a probe.
//	B5  Every change that must survive is told: the state, holds, and slots of probes. Counts of a closed breaker are told by nobody; who takes over
//	    without them begins a new window.
//	B6  Refusing is not an outcome: who is refused is told until when, and has consumed nothing.
package breaker
