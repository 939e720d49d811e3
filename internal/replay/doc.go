// Package replay runs the code of workflows: deterministic coroutines whose waits are answered from
// a history.
//
// A run is handed to a [Worker] with its history so far, and afterwards only news arrives. The code
// is executed from its first line. Every durable call asks for something by an identity (coroutine
// path, name, and key or arguments), and parks until the history answers. Live is replay whose next
// event has not been written yet, so there is one code path for both.
//
// What it promises:
//
//	P1  One goroutine of a run executes at any time. There is no driver goroutine: whoever parks last holds the baton, ends
//	    the turn and feeds the next event itself. A parked coroutine is a goroutine that waits on its own channel.
//	P2  Events are fed one at a time, in the order of the history, and only when every coroutine is parked. So waits, races
//	    and peeks answer the same on replay as they did live; ties go to the smallest position.
//	P3  The body of a step runs only at the end of the history, when everything that the code has seen is committed and
//	    everything that is recorded has been asked for; and once per activation and attempt.
//	P4  An event that nobody asked for (early) may be asked for later. What is still early at the end of the history, or when
//	    the code returns, is a mismatch: the run is blocked with a reason that names both sides, and nothing is executed.
//	P5  A step that is the only thing going on may be taken for granted: the code continues with its outcome before the commit
//	    (run ahead), up to the next thing that has an effect. When other news turns up at that position, the whole state of the run is
//	    thrown away and replayed; nothing is executed twice, because the outcome is already on its way.
//	P6  A parked run costs one goroutine per coroutine while it is loaded and nothing once it is released: every goroutine ends at
//	    its parking call (runtime.Goexit), in reverse order of creation, and code behind that call never runs.
//	P7  No method of Worker that the engine calls blocks or runs user code.
//
// What it does not do: it does not know types (package perdure encodes and decodes), it does not
// store anything, and it does not make code deterministic that looks at clocks, maps or other
// goroutines. It notices when the result differs, before anything runs.
//
// # Files
//
// worker, run and janitor are the outside (the engine's calls, one loaded run, idleness and the
// watchdog); machine, feed and coroutine the inside (the baton, events, parking); ask, id, step,
// future, scope, signal, child and finish are what code can ask for; settle is about steps whose
// outcome is kept outside of the history as well.
package replay
