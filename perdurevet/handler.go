package perdurevet

import (
	"go/ast"
	"slices"
)

// Hints for handlers, which are the code of entities and services. A handler does not run again on
// replay, so it may read the clock and draw random numbers. It must not sleep, and effects outside
// its commit may be lost or happen twice.
const (
	waitsSleep   = "the other calls of the key wait, and a crash loses the timer; start a workflow that waits with ctx.Sleep"
	waitsTimer   = "the other calls of the key wait, and a crash loses the timer; start a workflow that waits with ctx.Timer"
	waitsOthers  = "the other calls of the key wait for it; an entity must send and not wait: start a workflow that waits"
	outlivesCall = "it outlives the call and is lost with the process; start a workflow or submit a task with the EntityCtx"
	besideCommit = "the other calls of the key wait for it, and it happens again when the operation runs again; start a workflow or submit a task that does it"
	keepInState  = "it is lost with the process and not part of the commit; keep it in the state of the entity"
)

// handlerHint says what is wrong with an action in a handler. ok is false if the action is allowed.
// Unlike an operation of an entity, an RPC of a service may use input and output, and may wait for
// other goroutines.
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

// inHandlers returns those actions of a function that are forbidden in at least one kind of
// handler. A goroutine is allowed if the same function waits for anything. The check assumes that
// the function waits for the goroutine, which then does not outlive the call.
func (p *program) inHandlers(f *function) []reach {
	all := slices.Concat(f.direct, p.stateChanges(f))

	waits := false
	for _, r := range f.direct {
		waits = waits || r.Check == block || r.Check == channel
	}

	var found []reach
	for _, r := range all {
		if r.via != "" { // f.imported has the forbidden actions of functions of other packages
			continue
		}
		if _, ok := handlerHint(r, roleEntity); ok && (r.Check != goroutine || !waits) {
			found = append(found, r)
		}
	}
	return append(found, f.imported...)
}

// stateChanges finds the package variables that an ordinary function changes. reportWrites judges
// the handlers themselves.
func (p *program) stateChanges(f *function) []reach {
	if f.role != roleNone || f.test {
		return nil
	}
	var found []reach
	f.each(func(n ast.Node) {
		for _, w := range p.findAssignments(n) {
			if isPackageLevel(w.v) && !p.allows.silence(state, p.pass.Fset.Position(n.Pos())) {
				found = append(found, reach{
					Check: state, What: "a change of package variable " + w.v.Name(), Hint: keepInState, Where: p.at(n.Pos()), node: n,
				})
			}
		}
	})
	return found
}

// reportHandlers reports actions of a handler, direct or indirect, that block other calls or are
// not part of the commit of the handler. Handlers in tests block and observe on purpose, so in
// tests reportHandlers reports only sleeps and timers.
func (p *program) reportHandlers(f *function) {
	for _, r := range p.inHandlers(f) {
		p.reportHandler(f, r, r.node, r.via)
	}

	for _, u := range f.callees {
		if u.f.role != roleNone {
			continue // judge looks at that function by its own role
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

// reportHandler reports one action of a handler, direct or through another function.
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
