// Package history exports the history of a run to a file, reads it back, and cuts and edits it so
// that a new run can begin with it. It decides nothing about executions and reads no store:
// everything that it needs comes in as values.
//
// # The file
//
// A history is JSON lines in UTF-8. The first line is the header: the version of the format, the
// address, the run, and its start. Then comes one line per event, in order, from position 1. The
// last line is the outcome, so that a reader notices a truncated file. docs/histories.md describes
// every field.
//
//   - [Read] of [Write] returns the very same value; a property test checks that.
//   - Payloads that are compact JSON are written as JSON, others in base64. Texts that are not
//     UTF-8 are written in base64 as well.
//   - A reader of this version refuses unknown fields, kinds and versions, because leaving them out
//     would change the history.
//   - A hostile file costs at most as much memory as its bytes and the limits below, and every
//     error names its line.
//
// # The cut
//
// [Cut] makes the past of a new run from a history: which events it keeps, which it leaves out, and
// which things the new run asks for again. [Request] describes the rules.
package history
