// Package telemetry is what Perdure can be measured by: the families of metrics, declared in one
// table (families.go), and a Meter that counts them.
//
// A Meter that is nil counts nothing and costs nothing, so code that may be observed has one and
// does not ask. Counters and histograms are a few atomic numbers; states that somebody knows
// anyway, such as how many tasks wait, are asked for when the metrics are gathered and not before.
// Nothing here knows how metrics leave the process: package prom gives them to Prometheus. Spans
// are made by package tracing.
//
// Labels are names that programs define, and words of ours. There is never a key, a payload or the
// text of an error in one. Names could still be made up at run time, so every family has at most
// maxSeries combinations of them; whatever comes later is counted as Other.
package telemetry
