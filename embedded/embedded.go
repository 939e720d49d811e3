// Package embedded opens a node in this process: the store, the engine, and a worker for the given
// definitions.
//
//	app, err := embedded.Open(ctx, "file:app.db", Orders, Charge)
//	defer app.Close()
//
// The URL names the store:
//
//	memory:                    nothing survives; for tests
//	file:app.db                a SQLite file; one process at a time
//	postgres://user@host/db    a PostgreSQL database; all processes that open it form one cluster
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/deploy"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/prom"
	"github.com/perdure/perdure/internal/telemetry/tracing"
	"github.com/perdure/perdure/payload"
)

// Config is Open with settings, just as net.Dialer is net.Dial with settings. The zero value is
// right for most programs. A zero field means the default in its comment.
type Config struct {
	// Schema is the PostgreSQL schema that holds the tables; "perdure".
	Schema string
	// Shards is the number of shards of a new store. It can never change: for an existing store, it
	// must be 0 or the number that the store has. 0 means the default of the store.
	Shards int
	// Logger receives messages for operators: leases, takeovers, trouble with the store. They
	// contain no payloads. Nil logs nothing.
	Logger *slog.Logger
	// Metrics is where this process registers its metrics until it closes, such as
	// prometheus.DefaultRegisterer. Nil counts nothing. Apps that share a registry each need a
	// label of their own (prometheus.WrapRegistererWith). docs/observability.md lists the metrics.
	Metrics prometheus.Registerer
	// Tracer creates spans for starts, messages and executed code, such as
	// otel.GetTracerProvider(). The engine passes their context on across processes and restarts.
	// Nil creates no spans. See docs/observability.md.
	Tracer trace.TracerProvider
	// LeaseTTL is how long the other processes wait before they take over from this process if its
	// machine dies; 10 s.
	LeaseTTL time.Duration
	// IdleAfter is how long a waiting execution stays in memory; 5 s.
	IdleAfter time.Duration
	// MaxLoaded is how many executions this process keeps in memory, and works on, at the same
	// time; 10,000. Further executions go to another process, or wait with the reason no_slot. An
	// execution that waits for a timer, a message, a child or a queued task does not count.
	MaxLoaded int
	// MaxSteps is how many bodies of steps run at the same time; 1,024.
	MaxSteps int
	// MaxCalls is how many keys of entities and services may have running calls in this process at
	// the same time; 128. Calls of further keys go to another process, or wait with the reason
	// no_slot.
	MaxCalls int
	// MaxPayload is the largest input or output in bytes; 2 MiB.
	MaxPayload int
	// MaxHistory is how many bytes the history of a run may have; 50 MiB. A run that reaches this
	// limit stops with a reason, so use ContinueAsNew before that. The logger warns at four fifths
	// of the limit.
	MaxHistory int
	// MaxUnread is how many bytes of signals, updates and promises may wait for the code of a run;
	// 16 MiB, or a third of MaxHistory if that is less. MaxUnread is at most half of MaxHistory.
	MaxUnread int
	// MaxLoadedBytes is how many bytes of histories this process keeps in memory at the same time;
	// 256 MiB. If there is no room, the process unloads waiting executions. If that is not enough,
	// an execution waits until running steps have ended. One execution always fits, even a larger
	// one.
	MaxLoadedBytes int
	// Payloads says how inputs, outputs and messages are stored: format, compression, encryption,
	// and where large values go. The zero value is JSON in the store. All processes that serve or
	// call the same executions should have the same settings.
	Payloads payload.Codec
	// DrainTimeout is how long Close waits for running steps; 10 s.
	DrainTimeout time.Duration
	// Tasks says how this process executes tasks, if it has the code of activities with a queue.
	Tasks perdure.TaskConfig
	// Retention is how long the engine keeps an execution after its end, unless its workflow has
	// perdure.Retain; 30 days, at least a minute, or perdure.Forever. When the execution is
	// removed, its key may be used again. All processes of a cluster should have the same value,
	// because each process removes the executions that it owns. See docs/retention.md.
	Retention time.Duration
	// KeepDead is how long the engine keeps dead tasks; 90 days. With a negative time, it keeps
	// them until an operator purges them.
	KeepDead time.Duration
	// KeepRequests is how long the engine remembers the answer to a request id; 24 h, which is also
	// the minimum, because messages of transactions rely on it. With a longer time, the store has
	// more rows. Processes of a cluster may have different values: each process forgets the
	// requests to the executions and entities that it owns.
	KeepRequests time.Duration
	// Version names the build of this program, such as a commit. If a workflow is Pinned, only
	// processes of the version that started an execution continue that execution.
	Version string
	// Name is the name of the app. A schedule stores this name, to remember which app applied it.
	Name string
	// PruneSchedules deletes the schedules that an app of this Name applied and that are no longer
	// among the definitions. Without it, these schedules continue to fire. It needs a Name.
	PruneSchedules bool
	// NoSocket opens no socket. By default, an app on a file listens on a Unix socket next to the
	// file, app.db-socket, that only the user of this process can open. The command line uses the
	// socket to operate the program while it runs: signal, cancel, pause, explain and all other
	// commands.
	NoSocket bool
	// PeerListen is where the other processes of a cluster connect to this one, host:port or :port.
	// Only a PostgreSQL store has a cluster. The default is a free port on the address from which
	// this process reaches the database. Processes that cannot connect use the database instead,
	// which is slower. See docs/cluster.md.
	PeerListen string
	// PeerAdvertise is the address, host:port, at which the other processes reach PeerListen. Set
	// it for a process behind a proxy or in a container. The default is where the process listens.
	PeerAdvertise string
	// NoPeerLink opens neither a port for other processes nor connections to them.
	NoPeerLink bool
	// Weight is the share of the executions and entities that this process should own, relative to
	// the other processes of a cluster: a process with 200 owns about twice as much as one with
	// 100. The default is 100, the minimum 1 and the maximum 10,000. See docs/cluster.md.
	Weight int
	// Groups are the shard groups that this process serves. An execution, entity or service chooses
	// a group by its name: render@gpu is in the group gpu. All names without a group are in the
	// group "default", which is also the default of this field. The database must have the groups,
	// see docs/cluster.md. Only a PostgreSQL store has groups: on other stores, a process serves
	// every name.
	Groups []string
	// Databases hold shard groups, in addition to the database of the store. Each key is the name
	// that `perdure migrate` got for a database, and the value is the PostgreSQL URL of that
	// database. Databases must be the same in all processes of a cluster. See docs/cluster.md.
	Databases map[string]string
	// NoMigrate refuses a store whose schema is not up to date, instead of upgrading it.
	NoMigrate bool
	// AllowUnsafe accepts a PostgreSQL server that can lose acknowledged commits (fsync or
	// synchronous_commit off). Use it only for tests.
	AllowUnsafe bool
}

// Open opens a node on a store URL and serves the definitions. The error names every mistake in the
// definitions.
func Open(ctx context.Context, url string, defs ...perdure.Definition) (*perdure.App, error) {
	return Config{}.Open(ctx, url, defs...)
}

// MustOpen is Open for main functions and examples. It panics on an error.
func MustOpen(url string, defs ...perdure.Definition) *perdure.App {
	app, err := Open(context.Background(), url, defs...)
	if err != nil {
		panic(err)
	}
	return app
}

// Replay is perdure.Replay with the payload settings of the app. The history of an app that
// encrypts its payloads can be replayed only with the keys of the app.
func (c Config) Replay(ctx context.Context, r io.Reader, defs ...perdure.Definition) error {
	return attach.Replay(ctx, attach.Config{Logger: c.Logger, MaxPayload: c.MaxPayload, Payloads: c.Payloads}, r, defs...)
}

// errDeployCheck is the error of Open in a process that deploy-check has started. Such a process
// must not open the store.
var errDeployCheck = errors.New("open the store: perdure deploy-check has started this process to replay histories: call embedded.AnswerDeployCheck first in main")

// retainAudit is how long a program keeps the audit log of a file that only this program opens. On
// a shared store the settings of the servers decide.
func retainAudit(url string) time.Duration {
	if strings.HasPrefix(url, "file:") {
		return node.DefaultRetainAudit
	}
	return 0
}

// Open opens a node with these settings.
func (c Config) Open(ctx context.Context, url string, defs ...perdure.Definition) (*perdure.App, error) {
	if deploy.IsReplayProcess() {
		return nil, errDeployCheck
	}
	meter, unregister, err := c.meter()
	if err != nil {
		return nil, err
	}

	tracer := tracing.New(c.Tracer)
	cfg := node.Config{
		URL: url, Schema: c.Schema, Shards: c.Shards, Log: c.Logger, LeaseTTL: c.LeaseTTL, NoMigrate: c.NoMigrate,
		AllowUnsafe: c.AllowUnsafe, MaxPayload: codec.MaxStored(c.Payloads, c.MaxPayload), Version: c.Version, RetainDead: c.KeepDead,
		RetainRequest: c.KeepRequests, PeerListen: c.PeerListen, PeerAdvertise: c.PeerAdvertise, NoPeerLink: c.NoPeerLink, Weight: c.Weight, Groups: c.Groups, Databases: c.Databases,
		RetainAudit: retainAudit(url),
		Retention:   c.Retention, Meter: meter, Tracer: tracer, MaxHistory: c.MaxHistory, MaxUnread: c.MaxUnread, MaxLoaded: c.MaxLoadedBytes,
	}
	n, err := node.Open(ctx, cfg)
	if err != nil {
		unregister()
		return nil, fmt.Errorf("open the store: %w", err)
	}

	closeSocket := c.listen(ctx, n, cfg)
	closeNode := func() error {
		closeSocket()
		unregister()
		return n.Close()
	}

	app, err := attach.Embed(ctx, attach.Config{
		Backend: n.Backend(), Tenant: model.DefaultTenant, Logger: c.Logger, IdleAfter: c.IdleAfter, MaxLoaded: c.MaxLoaded, MaxSteps: c.MaxSteps, MaxCalls: c.MaxCalls,
		MaxPayload: c.MaxPayload, DrainTimeout: c.DrainTimeout, Tasks: c.Tasks, Version: c.Version, OnClosing: n.Stopping, OnClose: closeNode,
		Payloads: c.Payloads, Name: c.Name, PruneSchedules: c.PruneSchedules,
		Meter: meter, Tracer: tracer, Process: node.DescribeProcess(), ProcessGone: node.ProcessGone,
	}, defs...)
	if err != nil {
		return nil, errors.Join(err, closeNode())
	}
	return app, nil
}

// listen opens the socket next to a file. A program works without the socket, so listen only logs a
// failure.
func (c Config) listen(ctx context.Context, n *node.Node, cfg node.Config) (closeSocket func()) {
	path, ok := node.SocketPath(cfg.URL)
	if !ok || c.NoSocket {
		return func() {}
	}
	s, err := n.ServeSocket(ctx, path, model.DefaultTenant, cfg)
	if err != nil {
		if c.Logger != nil {
			c.Logger.Warn("the command line cannot operate this program while it runs", "error", err)
		}
		return func() {}
	}
	return s.Close
}

// meter returns the meter of the metrics, or nil when the configuration has none.
func (c Config) meter() (m *telemetry.Meter, unregister func(), err error) {
	if c.Metrics == nil {
		return nil, func() {}, nil
	}
	m = telemetry.New()
	unregister, err = prom.Register(c.Metrics, m)
	return m, unregister, err
}
