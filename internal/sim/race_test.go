//go:build race

package sim

// underRace says whether the race detector is on. If it is, the tests simulate fewer seeds. The
// race detector makes a simulation ten times as slow, and finds little, because each simulation
// runs in one goroutine.
const underRace = true
