// Package wrong holds the programs that Perdure must not accept: those of the design, 42 in all,
// and the validation rules of workflows and activities. Each is refused by the compiler, by Open,
// when it runs, or by perdurevet, with the message that its author sees; what we say ourselves also
// says what to do instead.
package wrong
