// Package perduretest runs workflows in tests: on the real engine, in virtual time, with processes
// that can crash.
//
//	func TestReminder(t *testing.T) {
//		perduretest.Run(t, perdure.Group{Reminder, SendMail.Bind(fakeMail)}, func(t *testing.T, env *perduretest.Env) {
//			exec, err := Reminder.Start(env.With(), customer) // it sleeps for a year
//			…
//			env.Advance(365 * 24 * time.Hour) // which takes no time
//		})
//	}
//
// Everything is used as in a program: workflows are started, signalled and awaited through
// env.With(), and a test double of an activity is another Bind. What the package adds is control
// over time ([Env.Advance], [Env.Settle]), over processes ([Env.Restart]), a look behind the scenes
// ([Env.Reason], [Env.History]), fakes that remember their calls ([Fake]), and a walk through every
// moment at which a process can die ([Explore]).
//
// # Virtual time
//
// The test function and everything that it starts run in a bubble of testing/synctest, in which the
// clock stands still while anything can move, and jumps to the next timer when nothing can. It
// begins at midnight UTC of the first of January 2000. Inside of it, t.Run, t.Parallel and
// t.Deadline are not allowed. Code that waits for something outside of the bubble (a socket, a
// file, a channel or a mutex that was made outside) makes time stand still meanwhile.
//
// # Checks
//
// Mistakes that a program would get away with until the next crash or deploy fail the test, with
// the place and the history:
//
//   - Code that does not do the same when it is executed again. Up to every point at which it can
//     only wait or begin a step, the code is executed twice from its first line, and executions do
//     not stay in memory while they wait. What it asks for must be the same.
//   - Durable calls from other goroutines, and inside of steps.
//   - A step that is repeated in a loop without a StepKey.
//   - Code that blocks otherwise than by a durable call.
//
// A test that waits for something that can never happen ends with the reasons of all open
// executions.
package perduretest
