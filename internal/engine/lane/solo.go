package lane

import "slices"

// solo lets entities of the lane run calls alone, only one entity at a time. If the process dies
// while a call runs alone, that call is probably the cause.
type solo struct {
	entry *entry   // the entity that may run a call alone
	line  []*entry // entities that wait for their turn
}

// claim reports whether an entity may run a call alone now. If not, the entity waits in the line.
func (s *solo) claim(e *entry) bool {
	if s.entry != e && s.busy() {
		if !slices.Contains(s.line, e) {
			s.line = append(s.line, e)
		}
		return false
	}
	s.entry = e
	return true
}

// busy reports whether the entity that may run a call alone still has such a call.
func (s *solo) busy() bool {
	return s.entry != nil && !s.entry.gone && s.entry.actor.entity != nil && s.entry.actor.entity.Lonely()
}

// next takes the next entity from the line once no other entity runs a call alone. It returns nil
// if there is no such entity.
func (s *solo) next() *entry {
	if len(s.line) == 0 || s.busy() {
		return nil
	}
	e := s.line[0]
	s.line = s.line[1:]
	s.entry = nil
	return e
}
