package perdurevet

import (
	"go/ast"
	"slices"
)

// What to write instead in a handler. A handler does not run again on replay, so it may read the
// clock and draw random numbers. It must not wait, and what it does outside of its commit may be
// lost or done twice.
const (
	waitsSleep   = "the other calls of the key wait, and a crash forgets it; start a workflow that waits with ctx.Sleep"
	waitsTimer   = "the other calls of the key wait, and a crash forgets it; start a workflow that waits with ctx.Timer"
	waitsOthers  = "the other calls of the key wait for it; an entity sends and never waits: start a workflow that does"
	outlivesCall = "it outlives the call and is lost with the process; start a workflow or submit a task with the EntityCtx"
	besideCommit = "the other calls of the key wait for it, and it happens again when the operation runs again; start a workflow or submit a task that does it"
	keepInState  = "it is lost with the process and not part of the commit; keep it in the state of the entity"
)

// handlerHint says what is wrong with something that a handler does; ok is false when it is allowed
// there. Input and output are what services are for, and an RPC may wait for what it has begun.
func handlerHint(r reach, in role) (hint string, ok bool) {
	switch {
	case r.Hint == useSleep:
		return waitsSleep, true
	case r.Hint == useTimer:
		return waitsTimer, true
	case r.Check == goroutine:
		return outlivesCall, true
	case r.Hint == keepInState:
		return keepInState, true
	case in == roleService:
		return "", false
	case r.Check == channel, r.Check == block:
		return waitsOthers, true
	case r.Hint == useStep:
		return besideCommit, true
	}

	return "", false
}

// inHandlers selects what a function does that has no place in some handler. A goroutine that the
// same function waits for does not outlive the call.
func (p *program) inHandlers(f *function) []reach {
	all := slices.Concat(f.direct, p.stateChanges(f))

	waits := false
	for _, r := range f.direct {
		waits = waits || r.Check == block || r.Check == channel
	}

	var found []reach
	for _, r := range all {
		if r.via != "" { // another package tells what it reaches by a fact of its own
			continue
		}
		if _, ok := handlerHint(r, roleEntity); ok && (r.Check != goroutine || !waits) {
			found = append(found, r)
		}
	}
	return append(found, f.imported...)
}

// stateChanges finds the package variables that an ordinary function changes. Handlers themselves
// are judged by writes.
func (p *program) stateChanges(f *function) []reach {
	if f.role != roleNone || f.test {
		return nil
	}
	var found []reach
	f.each(func(n ast.Node) {
		for _, w := range p.assignments(n) {
			if isPackageLevel(w.v) && !p.allows.silence(state, p.pass.Fset.Position(n.Pos())) {
				found = append(found, reach{
					Check: state, What: "a change of package variable " + w.v.Name(), Hint: keepInState, Where: p.at(n.Pos()), node: n,
				})
			}
		}
	})
	return found
}

// handlers reports what a handler does, or reaches, that keeps other calls waiting or escapes its
// commit. Handlers in tests block and observe on purpose, so that only their use of the clock is
// reported.
func (p *program) handlers(f *function) {
	for _, r := range p.inHandlers(f) {
		p.reportHandler(f, r, r.node, r.via)
	}

	for _, u := range f.callees {
		if u.f.role != roleNone {
			continue // judged where it stands
		}
		via := ""
		if u.f.obj != nil {
			via = p.short(u.f.obj)
		} else if at, ok := u.at.(ast.Expr); ok {
			via = p.text(at)
		}
		for _, r := range u.f.handler {
			p.reportHandler(f, r, u.at, via)
		}
	}
}

// reportHandler reports one thing that a handler does, itself or by way of another function.
func (p *program) reportHandler(f *function, r reach, at ast.Node, via string) {
	hint, ok := handlerHint(r, f.role)
	if !ok || f.test && r.Check != clock {
		return
	}
	if via != "" {
		p.report(r.Check, at, "%s reaches %s (%s) in %s: %s", via, r.What, r.Where, f.role.where(), hint)
		return
	}
	p.report(r.Check, at, "%s in %s: %s", r.What, f.role.where(), hint)
}
