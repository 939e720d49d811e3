// Package seam is where package perdure leaves its constructor for internal/attach, so that the
// constructor is not part of what users see.
//
// Package perdure imports seam and calls Set once, when it is initialised. Package attach imports
// both and calls Get. Nothing else uses seam: this package cannot name the types of perdure, and
// attach gives them their names.
package seam

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
	"github.com/perdure/perdure/payload"
)

// Config is how an app is joined with an engine. D is perdure.Definition, T is perdure.TaskConfig.
// A zero field has the default that its comment names.
type Config[D, T any] struct {
	// Backend is the engine that the app speaks to.
	Backend api.Backend
	// Tenant is the tenant that the app works in. Every address that the app uses is in it. It must
	// be set: the package that opens the backend knows it.
	Tenant string
	// Logger of the app. Nil logs nothing.
	Logger *slog.Logger
	// IdleAfter is how long a parked execution stays in memory; 5 s.
	IdleAfter time.Duration
	// MaxLoaded is how many executions stay in memory at once; 10,000.
	MaxLoaded int
	// MaxSteps is how many bodies of steps run at once; 1,024.
	MaxSteps int
	// MaxPayload is the largest input or output in bytes; 2 MiB.
	MaxPayload int
	// Payloads is how inputs, outputs and messages are stored. The zero value is JSON.
	Payloads payload.Codec
	// Cluster is the id of the store.
	Cluster string
	// Search finds every value in the store that contains a text, all as of one moment, for the
	// sweep of payloads. With nil there is no sweep.
	Search func(ctx context.Context, text string, found func(value []byte) error) error
	// DrainTimeout is how long Close waits for running steps; 10 s.
	DrainTimeout time.Duration
	// Tasks is how the app executes tasks.
	Tasks T
	// Version of the program, for workflows that are Pinned.
	Version string
	// Name of the app. Schedules remember which app applied them by this name.
	Name string
	// PruneSchedules deletes the schedules that an app of this Name applied and that this app does
	// not define.
	PruneSchedules bool
	// Meter counts what the app does, and Tracer makes spans of it. Nil counts and traces nothing.
	Meter  *telemetry.Meter
	Tracer *tracing.Tracer
	// OnClosing tells the engine that Close was called. Workers leave next.
	OnClosing func()
	// OnClose closes the engine. The app calls it last.
	OnClose func() error
	// Instead are definitions that replace those of the same name, for package perduretest.
	Instead []D
	// Checks are for tests only, for package perduretest.
	Checks *replay.Checks
}

// Constructors are what package perdure can make without users seeing it. A is *perdure.App.
type Constructors[A, D, T any] struct {
	// Open makes an app of a backend and definitions.
	Open func(ctx context.Context, cfg Config[D, T], defs ...D) (A, error)
	// Replay runs the code of definitions against an exported history.
	Replay func(ctx context.Context, cfg Config[D, T], history io.Reader, defs ...D) error
}

// constructors is a Constructors. Package perdure sets it before anything can read it.
var constructors any

// Set leaves the constructors here.
func Set[A, D, T any](c Constructors[A, D, T]) { constructors = c }

// Get returns the constructors. It panics for other types than those that were set, which is a
// mistake in package attach.
func Get[A, D, T any]() Constructors[A, D, T] { return constructors.(Constructors[A, D, T]) }
