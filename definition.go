package perdure

import (
	"time"

	"github.com/perdure/perdure/internal/pool"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/userdb"
)

// Definition is what Open and Dial accept: a Workflow, an Activity, an Entity, a Service, a
// Schedule, a Singleton, an Outbox, a Binding or a Group.
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
	code   replay.Code // nil if the workflow is only declared
	bound  bool        // defined or bound with code, not only declared
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
	wrong error // what is wrong with its options

	queue   string                   // empty if the activity runs inline
	limits  []string                 // whose permits its tasks need
	breaker string                   // which counts the outcomes of its tasks
	handler func(*host) pool.Handler // of tasks; nil without code and for transactional activities

	transactional bool
	db            *userdb.Database // of a transactional activity
}

func (d activityDefinition) define(r *registry) { r.activity(d) }

// elsewhere reports whether the code may be only in other processes: the activity is only declared
// and has a queue, so workers in those processes may execute it.
func (d *activityDefinition) elsewhere() bool { return d.fn == nil && !d.bound && d.queue != "" }
