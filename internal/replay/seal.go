package replay

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Seal gives what code sends to another execution the form in which it is stored. It may take its
// time, because that may mean to store something elsewhere, so it is called only when the command
// is about to be reported: on replay, hardly ever.
type Seal func(ctx context.Context, to model.Address, p model.Payload) (model.Payload, error)

// Normalize is what a step or child of the recorded input would be identified by today: the input
// is decoded into today's type and encoded again.
type Normalize func(host any, recorded model.Payload) ([]byte, error)

// unsealed is a command of the turn whose payload has not got its stored form.
type unsealed struct {
	command int
	seal    Seal
}

// seal gives the payloads of the turn their stored form. The caller holds the baton and may block.
// It reports false when that is impossible: the run is blocked then, and what the turn holds is
// asked for again when it goes on.
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
