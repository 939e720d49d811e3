//go:build !race

package crashwalk_test

// raceEnabled says that the race detector is on, which makes everything about eight times slower.
const raceEnabled = false
