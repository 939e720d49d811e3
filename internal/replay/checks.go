package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// Checks configures checks that are meant for tests of users' code. They are too expensive in
// production. With Checks, the worker keeps source positions and reports mistakes to the test.
type Checks struct {
	// Twice makes the worker check the code at every point where the code can only wait or start a
	// step. There the worker executes the code a second time, from its first line to that point.
	// If the code asks for different things the second time, the worker blocks the run before
	// anything takes effect. The worker also removes waiting runs from memory, so that each of them
	// is replayed when it continues.
	Twice bool
	// Found receives every mistake, from any goroutine. It must not block.
	Found func(Mistake)
	// Ran receives every attempt of a step whose body has returned, from the goroutine that
	// executed it.
	Ran func(Attempt)
	// Base is the root of the contexts of all bodies. The default is context.Background().
	Base context.Context //nolint:containedctx // the field is a root of contexts
}

// Mistake is something that the code of a run must not do.
type Mistake struct {
	Address model.Address
	Text    string // what is wrong, where, and what to do instead
	Blocked bool   // the run cannot continue
	// Stuck says that the code blocks outside durable calls. The run may never continue, and the
	// worker cannot end its goroutine.
	Stuck bool
}

// Attempt is one execution of the body of a step.
type Attempt struct {
	Address        model.Address
	Step           string
	IdempotencyKey string
	Number         int // as the history counts attempts: without attempts whose outcomes were lost
	Output         []byte
	Err            error
}

// reportMistake reports a mistake in the code of the run.
func (r *run) reportMistake(blocked bool, text string) {
	if c := r.w.cfg.Checks; c != nil && c.Found != nil {
		c.Found(Mistake{Address: r.start.Address, Text: text, Blocked: blocked})
	}
}

// reportStuck reports that the code of the run blocks outside durable calls.
func (r *run) reportStuck(stack string) {
	if c := r.w.cfg.Checks; c != nil && c.Found != nil {
		text := "code blocks outside durable calls" + at(placeIn(stack)) + ": wait with ctx.Sleep, a signal, a promise or a future, or do it in a step\n" + stack
		c.Found(Mistake{Address: r.start.Address, Text: text, Stuck: true})
	}
}

// reportMisuse reports a durable call in a place where it is not allowed, and returns its error.
func (m *machine) reportMisuse(err error) error {
	if m.w.cfg.Checks != nil {
		m.r.reportMistake(false, err.Error()+at(m.w.positions.of(0)))
	}
	return err
}

// reportAttempt reports that a body has returned.
func (c *Checks) reportAttempt(a *ask, out model.Payload, err error) {
	if c.Ran == nil {
		return
	}
	r := a.fut.m.r
	c.Ran(Attempt{
		Address: r.start.Address, Step: a.name, IdempotencyKey: idempotencyKey(r.start.IdentityRun(), a.id), Number: a.attempt + 1, Output: out.Data, Err: err,
	})
}

// ---- twice

// twin records what an earlier execution of the code had asked for after a number of events.
type twin struct {
	fed  int
	asks asks
}

// doubtful reports whether the code must be executed again, on a new machine, before its requests
// take effect. It returns false while a body runs, a report is in flight or an outcome is
// unreported, because the old machine must stay until the outcome is recorded.
func (m *machine) doubtful() bool {
	return m.unproven() && m.quiet() && !slices.ContainsFunc(m.commands, func(c model.Command) bool {
		return c.Kind == model.CommandRecord || c.Kind == model.CommandRetry
	})
}

// unproven reports whether the code has been executed up to here only once, although Twice is set.
func (m *machine) unproven() bool {
	c := m.w.cfg.Checks
	return c != nil && c.Twice && m.proven != m.fed+1
}

// prove compares what the code asks for with what it asked for the first time. If this is the first
// time, prove starts the second execution and returns false. After that the caller must not touch
// the machine, because another goroutine may use it.
func (m *machine) prove() bool {
	t := m.twin
	m.twin = nil
	if t == nil || t.fed != m.fed { // the code got here for the first time
		m.again = true
		m.r.retire(m.r.restart)
		return false
	}
	if text := t.difference(m); text != "" {
		m.block(text)
	} else {
		m.proven = m.fed + 1
	}
	return true
}

// note keeps a value that is not part of the identity of an ask, so that difference can compare it.
func (m *machine) note(a *ask, value []byte) {
	if c := m.w.cfg.Checks; c != nil && c.Twice {
		a.value = string(value)
	}
}

// difference describes how the requests differ from the requests of the first execution; "" when
// they do not.
func (t *twin) difference(m *machine) string {
	var before, after []string
	for _, a := range t.asks.sorted() {
		b := m.asks.get([]byte(a.id))
		switch {
		case a.kind == askPin: // the machine asks for it, not the code
		case b == nil:
			before = append(before, a.describe())
		case a.kind == askLock && a.section.ended != b.section.ended:
			before, after = append(before, a.describe()+a.section.endText()), append(after, b.describe()+b.section.endText())
		case a.kind == askStep: // it has no subject, so no length or value to compare
		case a.length != b.length:
			before, after = append(before, a.describe()+" of "+a.length.String()), append(after, b.describe()+" of "+b.length.String())
		case a.value != b.value:
			before, after = append(before, a.describe()+" as "+a.value), append(after, b.describe()+" as "+b.value)
		}
	}

	for _, b := range m.asks.sorted() {
		if t.asks.get([]byte(b.id)) == nil {
			after = append(after, b.describe())
		}
	}

	if len(before)+len(after) == 0 {
		return ""
	}
	return fmt.Sprintf("executed twice against the same history of %d events, the code asked for %s the first time, and for %s the second time: "+
		"it depends on something that the journal does not keep, such as a clock, a random number, the order of a map or a variable outside of it",
		m.fed, listTexts(before), listTexts(after))
}

// listTexts lists texts in an error, and cuts a long list.
func listTexts(texts []string) string {
	const most = 4
	switch n := len(texts); {
	case n == 0:
		return "nothing else"
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), n-most)
	}
	return strings.Join(texts, ", ")
}

// describe describes an ask in an error.
func (a *ask) describe() string {
	text := a.title()
	switch {
	case a.kind == askLock:
		text += " of " + lockNames(a.section.locks)
	case a.kind != askTimer && a.kind != askScope && a.name != "":
		text += " " + a.name
	}
	return text + at(a.position)
}
