//go:build race

package sim

// underRace tells that the race detector watches: everything takes ten times as long, and a
// simulation has one goroutine.
const underRace = true
