package history

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// before finds the first event that a name refers to. It first looks for a step, activity, task or
// child, then for a call or message that the code sent, then for a lock. Older builds did not
// accept names of calls, messages and locks, so names that they accepted keep their meaning.
func (c *cutter) before(name string) (int, error) {
	for _, means := range []func(*model.Event) bool{
		func(e *model.Event) bool { return nameOf(e) == name },
		func(e *model.Event) bool { return sentAs(e, name) },
		func(e *model.Event) bool { return e.Kind == model.EventLockAsked && name == lockName },
	} {
		for i := range c.h.Events {
			if means(&c.h.Events[i]) {
				return i, nil
			}
		}
	}
	return 0, fault.New(fault.NotFound, "the history of %s has no step, child or call %q; it has %s", c.h.Start.Run, name, c.placeNames())
}

// lockName is the name of the place before a lock. Sections have no names of their own.
const lockName = "lock"

// sentAs reports whether an event is a message that the code sent under a name. The name is that of
// an operation, RPC, signal or update, such as "deposit". It may have the name of the receiver and
// a dot in front, such as "account.deposit".
func sentAs(e *model.Event, name string) bool {
	return e.Kind == model.EventSent && e.Name != "" && (e.Name == name || receiver(e)+"."+e.Name == name)
}

// receiver returns the name of the entity, service or workflow that a message goes to.
func receiver(e *model.Event) string {
	if !e.Target.IsEntity() {
		return e.Target.Type
	}
	_, name, _ := strings.Cut(e.Target.Type, ":")
	return name
}

// isReply reports whether an event is the reply to a call of an entity or service under a name.
func (c *cutter) isReply(e *model.Event, name string) bool {
	return e.Kind == model.EventAnswered && slices.ContainsFunc(c.h.Events, func(o model.Event) bool {
		return o.ID == e.ID && o.Target.IsEntity() && sentAs(&o, name)
	})
}

// maxNames bounds the list of names in an error.
const maxNames = 20

// placeNames lists the possible places of a cut, for the error about an unknown name.
func (c *cutter) placeNames() string {
	var all []string
	for i := range c.h.Events {
		e := &c.h.Events[i]
		name := nameOf(e)
		switch {
		case e.Kind == model.EventSent && e.Name != "":
			name = receiver(e) + "." + e.Name
		case e.Kind == model.EventLockAsked:
			name = lockName
		}
		if name == "" || slices.Contains(all, name) {
			continue
		}
		if len(all) == maxNames {
			return strings.Join(all, ", ") + ", …"
		}
		all = append(all, name)
	}

	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
