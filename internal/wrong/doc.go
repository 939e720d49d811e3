// Package wrong contains the programs that Perdure must reject: the 42 programs of the design, and
// programs that break validation rules of workflows and activities. The compiler, Open, the engine
// at run time or perdurevet rejects each program, and the tests check the message that its author
// sees. Messages of Perdure also say what to do instead.
package wrong
