package queue

import (
	"testing"

	"pgregory.net/rapid"
)

// The board does what the naive one does, whatever happens to it.
func TestBoardIsLikeTheNaiveOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		t.Repeat(newRig(rapid.Bool().Draw(t, "moody")).actions())
	})
}
