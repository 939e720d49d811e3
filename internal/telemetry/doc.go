// Package telemetry has the metrics of Perdure: the families of metrics, declared in one table
// (families.go), and a Meter that counts them.
//
// A nil Meter counts nothing and costs nothing, so code can call it without a check. Counters and
// histograms are a few atomic numbers. Some gauges show a state that a component has anyway, such
// as the number of waiting tasks. The meter reads such a state only when the metrics are collected.
// This package does not export metrics: package prom gives them to Prometheus, and package otlp
// sends them to a collector. Package tracing creates spans.
//
// Labels contain names that programs define, and words from fixed lists. They never contain a key,
// a payload or the text of an error. A program could still invent names at run time. So each family
// counts a limited number of combinations of labels separately: maxSeries, or maxTenantSeries if
// the family has the tenant as a label. In all further combinations, the label Other replaces the
// names.
package telemetry
