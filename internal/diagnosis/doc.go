// Package diagnosis judges why something that is open does not go on.
//
// It is the one place that decides. Describe, list, stranded, doctor, queue list and the metrics
// all show what it returns, so they agree whichever process they are asked from. It is pure: the
// caller collects the facts (the row of a run, what its owner says, the nodes that are alive and
// the code that they have) and passes them in.
package diagnosis
