// Package audit records administrative actions: which caller took which action on what, when and
// through which door, what the action replaced, and how it ended. A door is a way into the server,
// such as gRPC or REST. A Log wraps the calls of a backend. All doors use the wrapped backend, so
// all of them record in the same way. The table in table.go says which calls are recorded.
//
// Promises:
//
//   - An action that the table names does not begin before its entry is durable. If the entry
//     cannot be written, the call fails as Unavailable and changes nothing.
//   - The outcome is written when the action has ended. If that write fails, the action is not
//     undone, and its entry keeps the outcome "unknown".
//   - An attempt that the policies refuse is recorded as well, at a bounded rate. Such an entry is
//     written in the background, so it can be lost when the process dies.
//   - An entry has no payload and no secret. All its texts are bounded.
//
// If the context of a call names no caller, the call comes from the program itself. The log records
// such a call only if Config.Caller is set.
package audit
