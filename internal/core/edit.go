package core

import (
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// edit replaces the state of the entity on behalf of an operator. It refuses the edit while an
// operation runs, because the operation works on the old state. It also refuses while a section
// holds the lock, because only that section may change the entity.
//
// A state records the version of its Go type. An edit may name a version. The new state never gets
// a lower version than the state that it replaces, because the operator has edited that state. If
// there was no state, the new state gets at least the version that the workers use.
func (n *Entity) edit(d *Decision, m *model.Message, a *Arrival, now model.Time) {
	n.expire(now)
	has := n.Row.VersionNow()
	want, ok := model.ParseEntityVersion(m.ID)

	switch {
	case n.Row.Address.Stateless():
		d.refuse(fault.Invalid, fmt.Sprintf("%s is a service: it has no state", m.To))
	case !ok:
		d.refuse(fault.Invalid, fmt.Sprintf("%q is not the version of an entity", m.ID))
	case n.Row.Locked():
		d.refuse(fault.Conflict, fmt.Sprintf("%s is locked by %s, so only that execution may change it: wait for it, or release the lock", m.To, n.Row.Holder.Address))
	case n.busy > 0:
		d.refuse(fault.Conflict, fmt.Sprintf("an operation of %s runs and may change the state: try again when it has ended", m.To))
	case !want.Fits(has):
		d.refuse(fault.Conflict, fmt.Sprintf("%s has version %s by now, not %s: read it again", m.To, has, m.ID))
	default:
		version := a.StateVersion
		if n.Row.Exists {
			version = n.Row.State.StateVersion()
		} else {
			n.Row.Created = now
			n.Row.Expires = a.Life.end(now, now)
		}
		n.Row.State, n.Row.Exists = m.Input.WithStateVersion(max(version, m.Input.StateVersion())), true
	}
}

// isEdit reports whether a message replaces the state.
func isEdit(m *model.Message) bool {
	return m.Kind == model.MessageMailbox && m.Name == model.MailboxEdit
}

// sayVersion answers an edit with the version of the entity after the edit.
func (n *Entity) sayVersion(d *Decision, m *model.Message) {
	if isEdit(m) && d.Answer.Failure == nil {
		d.Answer.Output = model.Payload{Data: []byte(n.Row.VersionNow().String()), Encoding: model.Text}
	}
}
