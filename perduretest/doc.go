// Package perduretest runs workflows in tests: on the real engine, in virtual time, with processes
// that can crash.
//
//	func TestReminder(t *testing.T) {
//		program := perdure.Group{Reminder, SendMail.Bind(fakeMail)}
//		perduretest.Run(t, program, func(t *testing.T, env *perduretest.Env) {
//			exec, err := Reminder.Start(env.With(), customer) // it sleeps for a year
//			…
//			env.Advance(365 * 24 * time.Hour) // which takes no time
//		})
//	}
//
// Tests use the same API as programs: they start, signal and await workflows through env.With(),
// and replace an activity by a test double with Bind. The package adds control over time
// ([Env.Advance], [Env.Settle]) and over processes ([Env.Restart]). It reads reasons and histories
// ([Env.Reason], [Env.History]), and has fakes that remember their calls ([Fake]). [Explore] tries
// every moment at which a process can die.
//
// # Virtual time
//
// The test function and everything that it starts run in a bubble of testing/synctest. The clock of
// a bubble stands still while any goroutine can run. When no goroutine can run, the clock jumps to
// the next timer. The clock starts at midnight UTC on the first of January 2000. Inside the bubble,
// t.Run, t.Parallel and t.Deadline are not allowed. While code waits for something outside the
// bubble (a socket, a file, or a channel or mutex created outside), time stands still.
//
// # Checks
//
// In a program, some mistakes show only after the next crash or deploy. In this package they fail
// the test, with the place and the history:
//
//   - Code that is not deterministic. Whenever the code can only wait or start a step, the package
//     executes it a second time from its first line. Both times, the code must ask for the same
//     steps. Executions do not stay in memory while they wait.
//   - Durable calls from other goroutines, and inside steps.
//   - A step that is repeated in a loop without a StepKey.
//   - Code that blocks without a durable call, for example on a channel. This also ends the calls
//     of the test, because the code may block forever.
//
// A test that waits for something that can never happen ends with the reasons of all open
// executions.
package perduretest
