// Package audit records administrative actions: who took which action on what, when, through which
// door, what it replaced, and how it ended. A Log wraps the calls of a backend. Every door that
// uses the wrapped backend records in the same way, and no door has rules of its own.
//
// Promises:
//
//   - An action of the table does not begin before its entry is durable. If the entry cannot be
//     written, the call fails as Unavailable and changes nothing.
//   - The outcome is written when the action has ended. If that write fails, the action stays done
//     and its entry stays with the outcome "unknown".
//   - An attempt that the policies refuse is recorded as well, at a bounded rate. Such an entry is
//     written in the background, so it can be lost when the process dies.
//   - An entry has no payload and no secret. All its texts are bounded.
//
// A call whose context names no caller comes from the program itself and is not recorded, unless
// the log has a caller for such calls.
package audit
