// Package diagnosis decides why an open execution or task makes no progress.
//
// No other package decides this. Describe, list, stranded, doctor, queue list and the metrics all
// show its result, so they agree no matter which process answers. The package is pure: the caller
// collects the facts (the row of a run, what its owner says, the live nodes and their code) and
// passes them in.
package diagnosis
