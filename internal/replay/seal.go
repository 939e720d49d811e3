package replay

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Seal returns the stored form of a payload that code sends to another execution. It may take long,
// because it may store data elsewhere. So the machine calls Seal only when it is about to report
// the command with the payload. During replay that hardly ever happens.
type Seal func(ctx context.Context, to model.Address, p model.Payload) (model.Payload, error)

// Normalize takes the recorded input of a step or child, decodes it into today's type and encodes
// it again. It returns the bytes that would identify this step or child in today's code.
type Normalize func(host any, recorded model.Payload) ([]byte, error)

// unsealed is a command of the turn whose payload does not have its stored form yet.
type unsealed struct {
	command int
	seal    Seal
}

// seal gives the payloads of the turn their stored form. The caller holds the baton and may block.
// If a payload cannot be stored, seal blocks the run and reports false. When the run continues
// later, its code asks for the commands of the turn again.
func (m *machine) seal() bool {
	for _, u := range m.unsealed {
		c := &m.commands[u.command]
		p, to := &c.Event.Input, c.Event.Target
		switch {
		case c.Message != nil:
			p, to = &c.Message.Input, c.Message.To
		case c.Kind == model.CommandAnswer || c.Kind == model.CommandRecord:
			p = &c.Event.Output
		}
		sealed, err := u.seal(m.w.ctx, to, *p)
		if err != nil {
			m.block(err.Error())
			return false
		}
		*p = sealed
	}

	m.unsealed = nil
	return true
}
