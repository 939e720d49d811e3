//go:build !race

package crashwalk_test

// raceEnabled tells that the race detector makes everything about eight times slower.
const raceEnabled = false
