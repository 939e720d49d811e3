package peer

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// crew is the kind of a message with a question of package crew. A node of an older version ignores
// such a message.
const crew = 'c'

// Foreman is an interface that a Handler may also implement, to receive the questions of package
// crew. A Post ignores these questions if its Handler does not implement Foreman.
type Foreman interface {
	// HandleCrew receives a question. It calls answer once, now or later, or never. It does not
	// block.
	HandleCrew(from model.NodeID, question []byte, answer func(answer []byte))
}

// Crew lets package crew use a Post: it sends questions as messages of the kind crew.
type Crew struct{ Post *Post }

// Call asks a node and waits for its answer, until ctx ends.
func (c Crew) Call(ctx context.Context, to model.NodeID, question []byte) ([]byte, error) {
	return c.Post.call(ctx, to, crew, question)
}
