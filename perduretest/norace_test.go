//go:build !race

package perduretest_test

const raceEnabled = false
