// Package history treats the history of a run as a thing: it is written to a file and read back,
// and cut and edited so that a new run can begin with it. It decides nothing about executions and
// reads no store: what it needs to know comes in as values.
//
// # The file
//
// A history is JSON lines in UTF-8. The first line is the header: the version of the format, the
// address, the run, how it began. Then comes one line per event, in order, from position 1. The
// last line is the outcome, so that a file that was cut off is noticed. docs/histories.md describes
// every field.
//
//   - What is written is read back as the very same value: [Read] of [Write] is the identity, which
//     a property test checks.
//   - Payloads that are compact JSON stand there as JSON, others in base64. Texts that are not
//     UTF-8 are written in base64 as well.
//   - A reader of this version refuses what it does not know (fields, kinds, versions): leaving it
//     out would change the history.
//   - A hostile file costs no more memory than its bytes and the limits below, and every complaint
//     names its line.
//
// # The cut
//
// [Cut] makes the past of a new run from a history: what is kept, what is left out, what of it is
// asked for again. The rules are on the [Request].
package history
