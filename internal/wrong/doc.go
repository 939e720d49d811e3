// Package wrong contains the programs that Perdure must reject: 42 numbered programs from the
// design of the SDK (TestAllProgramsAreHere has their numbers), and programs that break validation
// rules of workflows and activities. The compiler, Open, the engine at run time, or perdurevet
// rejects each program. The tests check the message that the author of the program sees. Messages
// of Perdure also say what to do instead.
package wrong
