// Package replay runs the code of workflows. The code consists of deterministic coroutines, and
// events of a history answer their waits.
//
// The engine hands a run to a [Worker] together with its history so far. After that it sends only
// new events. The worker executes the code from its first line. Every durable call of the code is a
// request with an identity (coroutine path, name, and key or arguments). The call parks, which
// means that its coroutine waits, until an event of the history answers the request. To run code
// live is to replay a history whose next event has not been written yet, so both use the same code
// of this package.
//
// The package promises:
//
//	P1  One goroutine of a run executes at any time: the one that holds the baton of the run,
//	    which is the right to execute. There is no driver goroutine. The coroutine that parks
//	    last holds the baton, ends the turn and feeds the next event itself. A parked coroutine
//	    is a goroutine that waits on its own channel.
//	P2  Events are fed one at a time, in the order of the history, and only when every coroutine
//	    is parked. So waits, races and peeks give the same answer on replay as they did live. If
//	    several results are ready, the one with the smallest position wins.
//	P3  The body of a step runs only at the end of the history, when everything that the code has
//	    seen is committed and the code has asked for everything that is recorded. The body of an
//	    attempt runs once in each activation (each time that the engine hands the run over).
//	P4  The history may have an event for a request that the code has not made yet (an early
//	    event). If an event is still early at the end of the history, or when the code returns,
//	    the code does not fit the history. The worker blocks the run with a reason that names
//	    what is recorded and what the code does, and executes nothing.
//	P5  If only one step is pending, the code may continue with its outcome before the outcome is
//	    committed (the code runs ahead), up to the next thing that has an effect. If another
//	    event arrives at the position of the outcome, the worker throws the whole state of the
//	    run away and replays. No step is executed twice, because the outcome is already on its
//	    way to the engine.
//	P6  A parked run costs one goroutine per coroutine while it is loaded, and nothing once it is
//	    released. When the worker releases it, every goroutine ends at the call in which it is
//	    parked (runtime.Goexit), in reverse order of creation, and code after that call never
//	    runs.
//	P7  No method of Worker that the engine calls blocks or runs user code.
//
// The package does not handle types: package perdure encodes and decodes values. Package replay
// stores nothing. If code depends on clocks, on the order of maps or on other goroutines, the
// package cannot make that code deterministic. But before the package runs a step, it notices when
// the code asks for something that differs from the history.
//
// # Files
//
// worker.go has the calls that the engine makes. run.go has a loaded run, and janitor.go the
// watchdog, which also releases idle runs. Three files make the code of a run move: machine.go
// passes the baton, feed.go passes events to the code, and coroutine.go parks coroutines. The
// things that workflow code can ask for are in ask.go, id.go, step.go, future.go, scope.go,
// signal.go, child.go and finish.go. settle.go has the steps that also store their outcome outside
// the history.
package replay
