// Package scenario decides what a seed contains, before the first event: its features, the plan of
// its faults, its programs and tasks, its entities and its settings.
//
// Programs are data. A machine interprets one as a pure function of a history. Workers run
// machines, and the checks of package oracle run them again, so both know what has to come next.
//
// The package also counts what happens, because a run of many seeds must see every operation and
// every fault at least once (Stats).
package scenario
