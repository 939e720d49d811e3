package perdure

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// stateKind is how error texts name a state.
const stateKind = "state of entity"

// stateMigration turns a state of one version into a state of the next version.
type stateMigration struct {
	from      int
	old, next reflect.Type
	missing   bool // its function is nil
	read      func(h *host, name string, p model.Payload) (any, error)
	run       func(old any) (any, error)
}

// version returns the version of the states that the code writes.
func (o *entityOptions) version() int {
	if o.stateVersion == nil {
		return 1
	}
	return *o.stateVersion
}

// checkMigrations passes everything that is wrong with the migrations of a state type to wrong. The
// migrations must form one chain that ends with the state type.
func (o *entityOptions) checkMigrations(wrong func(format string, args ...any), k *calleeKind, state reflect.Type) {
	switch v := o.version(); {
	case k != entityKind && (o.stateVersion != nil || len(o.migrations) > 0):
		wrong("StateVersion and MigrateState are for entities: a service has no state")
		return
	case v < 1 || v > model.MaxStateVersion:
		wrong("StateVersion(%d) must be at least 1 and at most %d", v, model.MaxStateVersion)
		return
	}

	all := slices.SortedFunc(slices.Values(o.migrations), func(a, b stateMigration) int { return cmp.Compare(a.from, b.from) })
	for i, m := range all {
		last, next, name := i == len(all)-1, state, state.String()
		if !last {
			next, name = all[i+1].old, "the old type of the next migration, "+all[i+1].old.String()
		}
		switch {
		case m.missing:
			wrong("the function of MigrateState(%d) is nil", m.from)
		case m.from < 1:
			wrong("MigrateState(%d): versions begin with 1", m.from)
		case last && m.from != o.version()-1:
			wrong("the last MigrateState(%d) leads to version %d, and StateVersion is %d", m.from, m.from+1, o.version())
		case !last && all[i+1].from != m.from+1:
			wrong("MigrateState(%d) leads to version %d, and the next one is MigrateState(%d)", m.from, m.from+1, all[i+1].from)
		case m.next != next:
			wrong("MigrateState(%d) returns %s, must be %s", m.from, m.next, name)
		}
	}
}

// readState decodes a state, and migrates it if it has an earlier version.
func readState[S any](h *host, name string, o *entityOptions, p model.Payload) (s S, err error) {
	has, knows := p.StateVersion(), o.version()
	p = p.Bare()
	switch {
	case has > knows:
		return s, fault.New(fault.Blocked, "the %s %s has version %d, and this build knows versions up to %d: deploy a build that knows it", stateKind, name, has, knows)
	case has == knows:
		return unmarshal[S](h, stateKind, name, p)
	}

	var v any
	for at := has; at < knows; at++ {
		i := slices.IndexFunc(o.migrations, func(m stateMigration) bool { return m.from == at })
		if i < 0 {
			return s, fault.New(fault.Blocked, "the %s %s has version %d, and this build has no MigrateState(%d)", stateKind, name, has, at)
		}
		m := &o.migrations[i]
		if at == has {
			if v, err = m.read(h, name, p); err != nil {
				return s, err
			}
		}
		if v, err = m.run(v); err != nil {
			return s, fault.New(fault.Blocked, "the %s %s cannot be migrated from version %d: %w", stateKind, name, at, err)
		}
	}

	return v.(S), nil // checkMigrations has compared the types
}
