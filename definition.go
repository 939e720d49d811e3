package perdure

import (
	"time"

	"github.com/perdure/perdure/internal/pool"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/userdb"
)

// Definition is what Open accepts: a workflow, an activity, an Entity, a Service, a Schedule, an
// Outbox, a Binding or a Group.
type Definition interface{ define(*registry) }

// Group is several definitions as one.
type Group []Definition

func (g Group) define(r *registry) {
	for _, d := range g {
		r.add(d)
	}
}

// Binding joins a declared handle with its code. Bind makes one.
type Binding struct{ def Definition }

func (b Binding) define(r *registry) { r.add(b.def) }

// Void is the input or output of something that has none.
type Void = struct{}

type workflowDefinition struct {
	name   string
	code   replay.Code // nil when it is only declared
	bound  bool        // it was meant to have code
	uses   []Definition
	pinned bool
	retain time.Duration
	retry  *RetryPolicy // of runs that failed
	at     string
	types  []typeOf
	input  inputType
}

func (d workflowDefinition) define(r *registry) { r.workflow(d) }

type activityDefinition struct {
	name  string
	fn    any // func(context.Context, I) (O, error) or *txCode[I, O]; nil when it is only declared
	bound bool
	at    string
	types []typeOf
	input inputType
	wrong error // with its options

	queue   string                   // that carries it; empty when it runs inline
	limits  []string                 // that its tasks take permits of
	breaker string                   // that its tasks count for
	handler func(*host) pool.Handler // of tasks; nil without code, and of transactional ones

	transactional bool
	db            *userdb.Database // of a transactional one
}

func (d activityDefinition) define(r *registry) { r.activity(d) }

// elsewhere reports whether the workers of its queue have the code, so that this app does not need
// it.
func (d *activityDefinition) elsewhere() bool { return d.fn == nil && !d.bound && d.queue != "" }
