//go:build race

package sim

// underRace says whether the race detector is on. The race detector makes everything ten times as
// slow and finds little, because a simulation has one goroutine.
const underRace = true
