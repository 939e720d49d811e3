// Package embedded opens a node in this process: the store, the engine, and a worker for the given definitions.
//
//	app, err := embedded.Open(ctx, "file:app.db", Orders, Charge)
//	defer app.Close()
//
// The URL names the store:
//
//	memory:                    nothing survives; for tests
//	file:app.db                a SQLite file; one process at a time
//	postgres://user@host/db    a PostgreSQL database; every process that opens it becomes part of one cluster
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/deploy"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/prom"
	"github.com/perdure/perdure/internal/telemetry/tracing"
	"github.com/perdure/perdure/payload"
)

// Config is Open with settings, as net.Dialer is to net.Dial. The zero value is right for most programs.
type Config struct {
	// Schema is the PostgreSQL schema that holds the tables; "perdure".
	Schema string
	// Shards of a store that is being created. It can never be changed; an existing store must have the same number. 0 is the store's default.
	Shards int
	// Logger hears what an operator should know: leases, takeovers, trouble with the store. No payloads. Default: nobody.
	Logger *slog.Logger
	// Metrics is where the metrics of this process are registered until it is closed, such as prometheus.DefaultRegisterer. Default: nothing is counted. Apps that share a
	// registry need a label each (prometheus.WrapRegistererWith). docs/observability.md lists them.
	Metrics prometheus.Registerer
	// Tracer makes spans of what is started, sent and executed, and has their context go with it over processes and restarts, such as otel.GetTracerProvider().
	// Default: no spans. See docs/observability.md.
	Tracer trace.TracerProvider
	// LeaseTTL is how long others wait before they take over from this process when it dies on another machine; 10 s.
	LeaseTTL time.Duration
	// IdleAfter is how long a waiting execution stays in memory; 5 s.
	IdleAfter time.Duration
	// MaxLoaded is how many executions stay in memory at once; 10,000.
	MaxLoaded int
	// MaxSteps is how many bodies of steps run at once; 1,024.
	MaxSteps int
	// MaxPayload is the largest input or output in bytes; 2 MiB.
	MaxPayload int
	// MaxHistory is how many bytes the history of a run may have; 50 MiB. A run that reaches it is kept, with a reason: use ContinueAsNew before. People are warned at
	// four fifths of it.
	MaxHistory int
	// MaxUnread is how many bytes of signals, updates and promises may wait for the code of a run, at most half of MaxHistory; 16 MiB, or a third of MaxHistory if that is less.
	MaxUnread int
	// MaxLoadedBytes is how many bytes of histories stay in memory at once; 256 MiB. Executions that wait make room for others; one that finds no room waits until those that
	// run a step have ended it. One is always in memory, however large it is.
	MaxLoadedBytes int
	// Payloads is how inputs, outputs and messages are stored: their format, compression, encryption, and where large ones go. The zero value is
	// JSON in the store. Every process that serves or calls the same executions should have the same settings.
	Payloads payload.Codec
	// DrainTimeout is how long Close waits for running steps; 10 s.
	DrainTimeout time.Duration
	// Tasks is how this process executes tasks, if it has the code of activities that have a queue: how many at once, which other queues, when it takes no more.
	Tasks perdure.TaskConfig
	// Retention is how long an execution is kept after it has ended, unless its workflow has a time of its own (perdure.Retain); 30 days, at least a minute,
	// or perdure.Forever. Its key may be used again afterwards. All processes of a cluster should have the same: each removes what it owns. See docs/retention.md.
	Retention time.Duration
	// KeepDead is how long tasks that failed for good are kept for people to look at and to requeue; 90 days. A negative time keeps them until they are purged.
	KeepDead time.Duration
	// KeepRequests is how long the answer to a request id is remembered, so that a repetition is harmless; 24 h, which is
	// also the least: messages of transactions rely on it. More rows are kept with a longer time. Processes of a cluster may
	// differ; each forgets the requests of what it owns.
	KeepRequests time.Duration
	// Version names the build of this program, such as a commit. Executions of workflows that are Pinned are continued only by processes of
	// the version that began them.
	Version string
	// Name of the app. Schedules remember who has applied them by it.
	Name string
	// PruneSchedules deletes the schedules that an app of this Name has applied and that are not among the definitions any more. Without it they
	// go on.
	PruneSchedules bool
	// NoMigrate refuses a store whose schema is not up to date, instead of upgrading it.
	NoMigrate bool
	// AllowUnsafe accepts a PostgreSQL server that can lose acknowledged commits (fsync or synchronous_commit off). For tests.
	AllowUnsafe bool
}

// Open opens a node on a store URL and serves the definitions. Every mistake in them is reported at once.
func Open(ctx context.Context, url string, defs ...perdure.Definition) (*perdure.App, error) {
	return Config{}.Open(ctx, url, defs...)
}

// MustOpen is Open for main functions and examples; it panics.
func MustOpen(url string, defs ...perdure.Definition) *perdure.App {
	app, err := Open(context.Background(), url, defs...)
	if err != nil {
		panic(err)
	}
	return app
}

// Replay is perdure.Replay with the payload settings of the app: the history of an app that encrypts needs its keys.
func (c Config) Replay(ctx context.Context, r io.Reader, defs ...perdure.Definition) error {
	return perdure.Attachment{Logger: c.Logger, MaxPayload: c.MaxPayload, Payloads: c.Payloads}.Replay(ctx, r, defs...)
}

// errDeployCheck keeps a build that is only to be checked away from the store.
var errDeployCheck = errors.New("open the store: perdure deploy-check has started this process to replay histories: call embedded.AnswerDeployCheck first in main")

// Open opens a node with these settings.
func (c Config) Open(ctx context.Context, url string, defs ...perdure.Definition) (*perdure.App, error) {
	if deploy.Asked() {
		return nil, errDeployCheck
	}
	meter, unregister, err := c.meter()
	if err != nil {
		return nil, err
	}
	tracer := tracing.New(c.Tracer)
	n, err := node.Open(ctx, node.Config{
		URL: url, Schema: c.Schema, Shards: c.Shards, Log: c.Logger, LeaseTTL: c.LeaseTTL, NoMigrate: c.NoMigrate,
		AllowUnsafe: c.AllowUnsafe, MaxPayload: codec.MaxStored(c.Payloads, c.MaxPayload), Version: c.Version, RetainDead: c.KeepDead,
		RetainRequest: c.KeepRequests,
		Retention:     c.Retention, Meter: meter, Tracer: tracer, MaxHistory: c.MaxHistory, MaxUnread: c.MaxUnread, MaxLoaded: c.MaxLoadedBytes,
	})
	if err != nil {
		unregister()
		return nil, fmt.Errorf("open the store: %w", err)
	}
	closeNode := func() error {
		unregister()
		return n.Close()
	}
	app, err := perdure.Attach(ctx, perdure.Attachment{
		Backend: n.Backend(), Logger: c.Logger, IdleAfter: c.IdleAfter, MaxLoaded: c.MaxLoaded, MaxSteps: c.MaxSteps,
		MaxPayload: c.MaxPayload, DrainTimeout: c.DrainTimeout, Tasks: c.Tasks, Version: c.Version, OnClosing: n.Stopping, OnClose: closeNode,
		Payloads: c.Payloads, Cluster: n.Store().Info().Cluster, Search: n.Search, Name: c.Name, PruneSchedules: c.PruneSchedules,
		Meter: meter, Tracer: tracer,
	}, defs...)
	if err != nil {
		return nil, errors.Join(err, closeNode())
	}
	return app, nil
}

// meter is what counts, if somebody wants to know.
func (c Config) meter() (m *telemetry.Meter, unregister func(), err error) {
	if c.Metrics == nil {
		return nil, func() {}, nil
	}
	m = telemetry.New()
	unregister, err = prom.Register(c.Metrics, m)
	return m, unregister, err
}
