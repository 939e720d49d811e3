package peer

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// crew is the kind of a message with a question of package crew. A node of an older version ignores
// such a message.
const crew = 'c'

// Foreman is a Handler that receives the questions of package crew.
type Foreman interface {
	// HandleCrew receives a question. It answers once, now or later, or never. It does not block.
	HandleCrew(from model.NodeID, question []byte, answer func(answer []byte))
}

// Crew is a Post as package crew uses it.
type Crew struct{ Post *Post }

// Call asks a node.
func (c Crew) Call(ctx context.Context, to model.NodeID, question []byte) ([]byte, error) {
	return c.Post.call(ctx, to, crew, question)
}
