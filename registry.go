package perdure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/batchjob"
	"github.com/perdure/perdure/internal/delayed"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/userdb"
)

// registry collects definitions and everything that is wrong with them.
type registry struct {
	checkType  func(reflect.Type) error // of the payload format; may be nil
	workflows  map[string]workflowDefinition
	activities map[string]activityDefinition
	entities   map[string]*entityDefinition // and services, by the types of their addresses
	bound      []callBinding
	// added has the handles that have been added so far. A handle that is passed twice, or in
	// several groups, is one definition.
	added      map[Definition]bool
	needs      []need
	outboxes   []outboxDefinition
	schedules  []*Schedule
	singletons []singletonDefinition
	problems   []error
	// replaced has definitions that replace other definitions of the same name. It is nil if there
	// are none.
	replaced *registry
}

func newRegistry(checkType func(reflect.Type) error) *registry {
	return &registry{
		checkType: checkType, workflows: map[string]workflowDefinition{}, activities: map[string]activityDefinition{},
		entities: map[string]*entityDefinition{}, added: map[Definition]bool{},
	}
}

// register collects definitions and their replacements. If there are mistakes, the error names all
// of them.
func register(defs []Definition, checkType func(reflect.Type) error, instead ...Definition) (*registry, error) {
	r := newRegistry(checkType)
	if len(instead) > 0 {
		for _, d := range instead {
			r.add(d)
		}
		r.joinBound()
		r.replaced = &registry{workflows: maps.Clone(r.workflows), activities: maps.Clone(r.activities), entities: maps.Clone(r.entities)}
	}

	for _, d := range defs {
		r.add(d)
	}
	r.joinBound()
	for _, name := range sortedKeys(r.workflows) {
		d := r.workflows[name]
		if d.code == nil {
			r.missingCode("workflow", name, d.at, d.bound)
		}
		r.checkUses(d)
	}

	for _, name := range sortedKeys(r.activities) {
		d := r.activities[name]
		if d.fn == nil && !d.elsewhere() {
			r.missingCode("activity", name, d.at, d.bound)
		}
	}

	for _, typ := range sortedKeys(r.entities) {
		r.checkEntity(r.entities[typ])
	}
	for _, n := range r.needs {
		if d := r.activities[n.activity]; d.fn == nil && !d.elsewhere() {
			r.wrong("%s: activity %s is declared but has no code: pass its Bind(fn) (%s)", n.who, n.activity, n.at)
		}
	}

	r.problems = distinct(r.problems)
	switch n := len(r.problems); n {
	case 0:
		r.workflows[schedule.Type] = workflowDefinition{name: schedule.Type, code: schedule.Code, bound: true}
		r.workflows[model.BatchType] = workflowDefinition{name: model.BatchType, code: batchjob.Code, bound: true}
		r.workflows[delayed.Type] = workflowDefinition{name: delayed.Type, code: delayed.Code, bound: true, retain: delayed.Retention}
		return r, nil
	case 1:
		return nil, fault.New(fault.Invalid, "a mistake in the definitions: %w", r.problems[0])
	default:
		return nil, fault.New(fault.Invalid, "%d mistakes in definitions:\n%w", n, errors.Join(r.problems...))
	}
}

func (r *registry) add(d Definition) {
	isPointer := d != nil && reflect.ValueOf(d).Kind() == reflect.Pointer
	if d == nil || isPointer && reflect.ValueOf(d).IsNil() {
		r.wrong("a definition is nil")
		return
	}
	if isPointer {
		if r.added[d] {
			return
		}
		r.added[d] = true
	}
	d.define(r)
}

func (r *registry) wrong(format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf(format, args...))
}

// distinct drops duplicate problems. They exist because a definition that is both passed and named
// in Uses is checked twice.
func distinct(problems []error) []error {
	said := map[string]bool{}
	return slices.DeleteFunc(problems, func(err error) bool {
		text := err.Error()
		defer func() { said[text] = true }()
		return said[text]
	})
}

func (r *registry) workflow(d workflowDefinition) {
	if r.replaced != nil && r.replaced.workflows[d.name].code != nil {
		return
	}
	if old, ok := r.workflows[d.name]; ok {
		r.wrong("two definitions of workflow %s (%s, %s): pass one of them, or give it another name", d.name, old.at, d.at)
		return
	}

	r.check("workflow", d.name, d.at, d.types)
	if strings.HasPrefix(d.name, model.TaskPrefix) {
		r.wrong("the name of workflow %s begins with %q, which is reserved for tasks (%s)", d.name, model.TaskPrefix, d.at)
	}

	for _, k := range []*calleeKind{entityKind, serviceKind} {
		if strings.HasPrefix(d.name, k.prefix) {
			r.wrong("the name of workflow %s begins with %q, as the addresses of %s do (%s)", d.name, k.prefix, k.words, d.at)
		}
	}

	if strings.HasPrefix(d.name, schedule.Reserved) {
		r.wrong("the name of workflow %s begins with %s, which is reserved for Perdure: give it another name (%s)", d.name, schedule.Reserved, d.at)
	}
	if d.retry != nil {
		d.retry.check(func(format string, args ...any) {
			r.wrong("workflow %s: %v (%s)", d.name, fmt.Errorf(format, args...), d.at)
		})
	}

	if d.retain != 0 && d.retain < model.MinRetention {
		r.wrong("workflow %s is retained for %s, must be at least %s (%s)", d.name, d.retain, model.MinRetention, d.at)
	}
	r.workflows[d.name] = d
}

func (r *registry) activity(d activityDefinition) {
	if r.replaced != nil && r.replaced.activities[d.name].fn != nil {
		return
	}

	if old, ok := r.activities[d.name]; ok && d.elsewhere() {
		return // the earlier definition has more information
	} else if ok && !old.elsewhere() {
		r.wrong("two definitions of activity %s (%s, %s): pass one of them, or give it another name", d.name, old.at, d.at)
		return
	}

	r.check("activity", d.name, d.at, d.types)
	if d.wrong != nil {
		r.wrong("activity %s: %w (%s)", d.name, d.wrong, d.at)
	}
	if d.transactional && d.queue != "" {
		r.wrong("activity %s: %s (%s)", d.name, txQueued, d.at)
	}
	if d.transactional && d.db == nil {
		r.wrong("activity %s has no database: give it perdure.SQL(db) or perdure.Pgx(pool), after the pool was made (%s)", d.name, d.at)
	}
	r.activities[d.name] = d
}

// missingCode reports a definition that this process should run but that has no code. bound is true
// if the program passed a nil function.
func (r *registry) missingCode(kind, name, at string, bound bool) {
	if bound {
		r.wrong("the function of %s %s is nil (%s)", kind, name, at)
		return
	}
	r.wrong("%s %s is declared but has no code: pass its Bind(fn) (%s)", kind, name, at)
}

func (r *registry) check(kind, name, at string, types []typeOf) {
	if err := checkName(kind, name); err != nil {
		r.wrong("%w (%s)", err, at)
	}
	r.checkTypes(at, types)
}

// checkTypes records a problem for each type whose values cannot be stored.
func (r *registry) checkTypes(at string, types []typeOf) {
	for _, t := range types {
		err := encodable(t.typ, nil)
		if err == nil && r.checkType != nil {
			err = r.checkType(t.typ)
		}
		if err != nil {
			r.wrong("%s: %w; use a type that can be written and read again (%s)", t.what, err, at)
		}
	}
}

// checkUses records a problem for each definition without code that a workflow names in Uses.
func (r *registry) checkUses(d workflowDefinition) {
	needed := newRegistry(nil)
	for _, u := range d.uses {
		needed.add(u)
	}

	needed.joinBound()
	for _, n := range needed.needs {
		needed.activities[n.activity] = activityDefinition{}
	}

	r.problems = append(r.problems, needed.problems...)
	for _, name := range sortedKeys(needed.activities) {
		if a, n := r.activities[name], needed.activities[name]; a.fn == nil && n.fn == nil && !n.elsewhere() {
			r.wrong("workflow %s uses activity %s, which has no code here and no queue: pass its Bind(fn)", d.name, name)
		}
		if needed.activities[name].transactional && r.activities[name].fn == nil {
			r.wrong("workflow %s uses transactional activity %s: pass it too, so that its database is prepared", d.name, name)
		}
	}

	for _, typ := range sortedKeys(needed.entities) {
		if e := needed.entities[typ]; r.entities[typ] == nil {
			r.wrong("workflow %s uses %s %s, which has no code here: pass it", d.name, e.kind.word, e.name)
		}
	}

	for _, name := range sortedKeys(needed.workflows) {
		if r.workflows[name].code == nil {
			r.wrong("workflow %s uses workflow %s, which has no code here: pass it, or its Bind(fn)", d.name, name)
		}
	}
}

// inputs returns the input types of workflows and tasks, by the types of their addresses.
func (r *registry) inputs() map[string]inputType {
	all := map[string]inputType{}
	for name, d := range r.workflows {
		if d.code != nil && d.input.check != nil {
			all[name] = d.input
		}
	}
	for name, d := range r.activities {
		if d.fn != nil {
			all[model.TaskPrefix+name] = d.input
		}
	}
	return all
}

// databases returns the databases of transactional activities, each once.
func (r *registry) databases() (all []*userdb.Database) {
	for _, name := range sortedKeys(r.activities) {
		if db := r.activities[name].db; db != nil && !slices.ContainsFunc(all, db.Same) {
			all = append(all, db)
		}
	}
	return all
}

// openDatabases prepares the databases of transactional activities and outboxes.
func (r *registry) openDatabases(ctx context.Context) error {
	for _, d := range r.outboxes {
		if err := d.db.Open(ctx, userdb.Outbox); err != nil {
			return fmt.Errorf("the database of the outbox (%s): %w", d.at, err)
		}
	}
	for _, name := range sortedKeys(r.activities) {
		d := r.activities[name]
		if d.db == nil {
			continue
		}
		if err := d.db.Open(ctx, userdb.Outcomes); err != nil {
			return fmt.Errorf("the database of activity %s (%s): %w", name, d.at, err)
		}
	}
	return nil
}

// callerPosition returns file:line of the code that called the exported function.
func callerPosition() string {
	_, file, line, ok := runtime.Caller(2)
	if !ok {
		return "unknown"
	}
	if i := strings.LastIndex(file, "/"); i >= 0 {
		if j := strings.LastIndex(file[:i], "/"); j >= 0 {
			file = file[j+1:]
		}
	}
	return fmt.Sprintf("%s:%d", file, line)
}
