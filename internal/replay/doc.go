// Package replay runs the code of workflows: deterministic coroutines whose waits are answered from
// a history.
//
// The engine hands a run to a [Worker] with its history so far; afterwards it sends only news. The
// worker executes the code from its first line. Every durable call asks for something by an
// identity (coroutine path, name, and key or arguments), and parks until the history answers.
// Running live is replaying a history whose next event has not been written yet, so there is one
// code path for both.
//
// It promises:
//
//	P1  One goroutine of a run executes at any time. There is no driver goroutine: the coroutine
//	    that parks last holds the baton, ends the turn and feeds the next event itself. A parked
//	    coroutine is a goroutine that waits on its own channel.
//	P2  Events are fed one at a time, in the order of the history, and only when every coroutine
//	    is parked. So waits, races and peeks give the same answer on replay as they did live; on
//	    a tie the smallest position wins.
//	P3  The body of a step runs only at the end of the history, when everything that the code has
//	    seen is committed and everything that is recorded has been asked for; and once per
//	    activation and attempt.
//	P4  The code may ask later for an event that it has not asked for yet (an early event). An
//	    event that is still early at the end of the history, or when the code returns, is a
//	    mismatch: the run is blocked with a reason that names both sides, and nothing is executed.
//	P5  If a step is the only thing going on, its outcome may be taken for granted: the code
//	    continues with it before the commit (runs ahead), up to the next thing that has an effect.
//	    If other news arrives at that position, the whole state of the run is thrown away and
//	    replayed. Nothing is executed twice, because the outcome is already on its way.
//	P6  A parked run costs one goroutine per coroutine while it is loaded, and nothing once it is
//	    released: every goroutine ends at its parking call (runtime.Goexit), in reverse order of
//	    creation, and code behind that call never runs.
//	P7  No method of Worker that the engine calls blocks or runs user code.
//
// It does not handle types (package perdure encodes and decodes), and it stores nothing. It cannot
// make code deterministic that looks at clocks, maps or other goroutines. But it notices when the
// result differs, before anything runs.
//
// # Files
//
// worker, run and janitor are the outside: the engine's calls, one loaded run, idleness and the
// watchdog. machine, feed and coroutine are the inside: the baton, events, parking. ask, id, step,
// future, scope, signal, child and finish are what code can ask for. settle is about steps whose
// outcome is also stored outside the history.
package replay
