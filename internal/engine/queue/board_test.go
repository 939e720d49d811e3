package queue

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever calls the board gets, it does the same as the naive board.
func TestBoardIsLikeTheNaiveOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		t.Repeat(newRig(rapid.Bool().Draw(t, "moody")).actions())
	})
}
