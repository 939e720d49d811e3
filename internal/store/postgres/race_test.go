//go:build race

package postgres

// raceEnabled says whether the tests run with the race detector.
const raceEnabled = true
