// Package seam passes unexported constructors of package perdure to internal/attach. It exists so
// that users do not see these constructors.
//
// Package perdure imports seam and calls Set once, when it is initialised. Package attach imports
// both and calls Get. No other package calls Set or Get. The types of seam have type parameters
// because seam cannot import the types of perdure.
package seam

import (
	"context"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
	"github.com/perdure/perdure/payload"
)

// Config says how to join an app with an engine. D is perdure.Definition, T is perdure.TaskConfig.
// A zero field means the default in its comment.
type Config[D, T any] struct {
	// Backend is the engine that the app uses.
	Backend api.Backend
	// Tenant is the tenant that the app works in. Every address that the app uses is in this
	// tenant. It must be set: the package that opens the backend knows it.
	Tenant string
	// Served says that the engine itself runs the built-in workflows, such as schedules. If it is
	// false, the app runs them.
	Served bool
	// Logger is the logger of the app. Nil logs nothing.
	Logger *slog.Logger
	// IdleAfter is how long a waiting execution stays in memory; 5 s.
	IdleAfter time.Duration
	// MaxLoaded is how many executions this process works on at the same time, and how many it
	// keeps in memory; 10,000. Further executions go to another process, or wait with the reason
	// no_slot. An execution that waits for a timer, a message, a child or a queued task does not
	// count as an execution that the process works on. If too many executions are in memory, the
	// process unloads waiting executions.
	MaxLoaded int
	// MaxSteps is how many bodies of steps run at the same time; 1,024.
	MaxSteps int
	// MaxCalls is how many keys of entities and services may have running calls in this process at
	// the same time; 128. Calls of further keys go to another process, or wait with the reason
	// no_slot.
	MaxCalls int
	// MaxPayload is the largest input or output in bytes; 2 MiB.
	MaxPayload int
	// Payloads is how inputs, outputs and messages are stored. The zero value is JSON.
	Payloads payload.Codec
	// DrainTimeout is how long Close waits for running steps; 10 s.
	DrainTimeout time.Duration
	// Tasks configures how the app executes tasks.
	Tasks T
	// Version is the version of the program, for workflows that are Pinned.
	Version string
	// Name is the name of the app. A schedule stores this name, to remember which app applied it.
	Name string
	// PruneSchedules deletes the schedules that an app of this Name applied and that this app does
	// not define.
	PruneSchedules bool
	// Meter counts what the app does, and Tracer creates spans for it. If they are nil, the app
	// counts nothing and creates no spans.
	Meter  *telemetry.Meter
	Tracer *tracing.Tracer
	// Process describes this process. ProcessGone reports whether a described process is provably
	// gone. Singletons use them. Without them, a singleton waits until the lease of a dead process
	// ends.
	Process     string
	ProcessGone func(process string) bool
	// OnClosing runs when Close is called, before the workers leave.
	OnClosing func()
	// OnClose closes the engine. The app calls it last.
	OnClose func() error
	// The definitions in Instead replace the definitions of the same name. Only package perduretest
	// sets it.
	Instead []D
	// Checks configures the checks of package perduretest. Only tests set it.
	Checks *replay.Checks
}

// Connect opens a connection to an address.
type Connect = func(ctx context.Context, address string) (net.Conn, error)

// Constructors are the functions of package perdure that users do not see. A is *perdure.App.
type Constructors[A, D, T any] struct {
	// Open builds an app from a backend and definitions.
	Open func(ctx context.Context, cfg Config[D, T], defs ...D) (A, error)
	// Dial does the same as perdure.Dial, with the settings of cfg and over connections that
	// connect opens. OnClose runs after the connection is closed.
	Dial func(ctx context.Context, cfg Config[D, T], url string, connect Connect, defs ...D) (A, error)
	// Replay runs the code of definitions against an exported history.
	Replay func(ctx context.Context, cfg Config[D, T], history io.Reader, defs ...D) error
}

// constructors holds a Constructors. Package perdure sets it before any package can read it.
var constructors any

// Set stores the constructors.
func Set[A, D, T any](c Constructors[A, D, T]) { constructors = c }

// Get returns the constructors. It panics if the type parameters differ from the type parameters of
// Set, which would be a mistake in package attach.
func Get[A, D, T any]() Constructors[A, D, T] { return constructors.(Constructors[A, D, T]) }
