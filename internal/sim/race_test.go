//go:build race

package sim

// underRace says whether the race detector is on. With it everything takes ten times as long, and
// it finds little, because a simulation has one goroutine.
const underRace = true
