package replay

// Freeze lets the worker replay, but not run steps. So a test sees the state at the end of a
// history.
func (w *Worker) Freeze() { w.draining.Store(true) }

// ParseID returns the parts of an identity, for tests of the format.
func ParseID(s string) (path, kind, name, key string, occurrence int, ok bool) {
	p, ok := parseID(s)
	return p.path, string(rune(p.kind)), p.name, p.key, p.occurrence, ok
}

// StepID returns the identity of a step.
//
//arch:parameters the parts of an identity, for a test of the format
func StepID(path, name, key string, keyed bool, input []byte, occurrence int) string {
	id := identity{kind: askStep, name: name, key: key, keyed: keyed, input: input, hashed: input != nil && !keyed}
	return string(appendOccurrence(id.append(nil, path), occurrence))
}

// ChildPath returns the path of a coroutine.
var ChildPath = childPath
