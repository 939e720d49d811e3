// Package history exports the history of a run to a file, reads it back, and cuts and edits it so
// that a new run can begin with it. It does not change executions and does not read a store itself:
// callers pass in everything that it needs.
//
// # The file
//
// The file has one JSON value per line, in UTF-8. The first line is the header: the version of the
// format, the address, the run, and its start. Then comes one line per event, in order, from
// position 1. The last line is the outcome, so that a reader notices a truncated file.
// docs/histories.md describes every field.
//
//   - [Read] returns the value that [Write] has written; a property test checks that. The file has
//     no place for some fields: Replaced and Earlier of the start, Leaves of the outcome, and Same
//     and Fences of a task.
//   - Payloads that are compact JSON are written as JSON, others in base64. Texts that are not
//     UTF-8 are written in base64 as well.
//   - A reader refuses fields, kinds and versions that it does not know, because the history would
//     change if it left them out.
//   - Reading a hostile file needs memory only in proportion to its size, and at most for MaxEvents
//     events and lines of MaxLine bytes. Every error names the line of the file.
//
// # The cut
//
// [Cut] makes the past of a new run from a history. It decides which events to keep, which to leave
// out, and which things the new run asks for again. [Request] describes the rules.
package history
