package perdure

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	server "github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
	"github.com/perdure/perdure/payload"
)

// Dialer is Dial with settings, just as net.Dialer is net.Dial with settings. The zero value is
// right for a server on this machine. A zero field means the default in its comment.
type Dialer struct {
	// Token is the key with which this program authenticates. Leave it empty for a server that
	// needs no key, such as perdure dev. Unless PlainText is set, Dial refuses to send the token in
	// plain text to another machine.
	Token string
	// TLS has the TLS settings of the connection. Nil trusts the roots of the system.
	TLS *tls.Config
	// PlainText turns off TLS, even for servers on other machines. Without TLS, other machines in
	// the network can read everything, including the token. So use PlainText only in networks that
	// you trust.
	PlainText bool
	// Tenant chooses the tenant. Only an admin key, or a token for several tenants, may choose;
	// every other key belongs to one tenant.
	Tenant string
	// Patience is how long Dial and calls try to reach a server; 1 min. The deadline of a call may
	// end the attempt earlier.
	Patience time.Duration
	// Logger receives messages for operators: broken connections, lost sessions. They contain no
	// payloads. Nil logs nothing.
	Logger *slog.Logger
	// Metrics is where the app registers its metrics until it closes, such as
	// prom.Metrics(prometheus.DefaultRegisterer). These metrics describe this process: its
	// activities, its tasks and its connection. The server has the other metrics. Nil counts
	// nothing. See docs/observability.md.
	Metrics Metrics
	// Tracer creates spans for starts, messages and executed code, such as
	// otel.GetTracerProvider(). The server passes their context on to other programs. Nil creates
	// no spans. See docs/observability.md.
	Tracer trace.TracerProvider
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
	// MaxPayload is the largest input or output in bytes; 2 MiB. The server has a limit of its own;
	// the smaller one applies.
	MaxPayload int
	// Payloads says how inputs, outputs and messages are stored. The server sees only their stored
	// form: it cannot read what this program has encrypted.
	Payloads payload.Codec
	// DrainTimeout is how long Close waits for running steps; 10 s.
	DrainTimeout time.Duration
	// Tasks says how this process executes tasks, if it has the code of activities with a queue.
	Tasks TaskConfig
	// Version names the build of this program, such as a commit. If a workflow is Pinned, only
	// processes of the version that started an execution continue that execution.
	Version string
	// Name is the name of the app. A schedule stores this name, to remember which app applied it.
	Name string
	// PruneSchedules deletes the schedules that an app of this Name applied and that are no longer
	// among the definitions. It needs a Name.
	PruneSchedules bool
}

// Dial connects to a server. The app calls executions and entities there. With definitions, the app
// is also a worker: the server gives it work for these definitions. An app of Dial can do what an
// app of embedded.Open can do, with a few exceptions. To move a program from a store of its own to
// a server, change only the line that opens the app. docs/remote-workers.md lists the exceptions.
//
// The URL names one or more servers of a cluster:
//
//	grpc://host:7800             TLS, unless the host is this machine
//	grpc://one:7800,two:7800     the program uses one of them, and the other if that one fails
//	unix:/run/app.sock           a socket of this machine
//
// Dial fails if no server answers within Dialer.Patience. After Dial has succeeded, the app
// reconnects whenever the connection breaks: calls wait, and running steps continue.
func Dial(ctx context.Context, url string, defs ...Definition) (*App, error) {
	return Dialer{}.Dial(ctx, url, defs...)
}

// Dial connects to a server with these settings.
func (d Dialer) Dial(ctx context.Context, url string, defs ...Definition) (*App, error) {
	app, err := d.dial(ctx, url, defs...)
	return app, public(err)
}

func (d Dialer) dial(ctx context.Context, url string, defs ...Definition) (*App, error) {
	cfg, err := server.ParseURL(url)
	if err != nil {
		return nil, err
	}
	cfg.Token, cfg.Tenant, cfg.Version, cfg.Log, cfg.Patience = d.Token, d.Tenant, d.Version, d.Logger, d.Patience
	if cfg.TLS = d.TLS; d.TLS != nil {
		cfg.PlainText = false
	}
	if d.PlainText {
		cfg.PlainText, cfg.PlainTextToken = true, true
	}

	meter, unregister, err := startMetrics(d.Metrics)
	if err != nil {
		return nil, err
	}

	app, err := dialServer(ctx, cfg, attachment{
		Logger: d.Logger, IdleAfter: d.IdleAfter, MaxLoaded: d.MaxLoaded, MaxSteps: d.MaxSteps, MaxCalls: d.MaxCalls, MaxPayload: d.MaxPayload,
		DrainTimeout: d.DrainTimeout, Tasks: d.Tasks, Version: d.Version, Payloads: d.Payloads, Name: d.Name, PruneSchedules: d.PruneSchedules,
		Meter: meter, Tracer: tracing.New(d.Tracer), OnClose: func() error { unregister(); return nil },
	}, defs...)
	if err != nil {
		unregister()
		return nil, err
	}
	return app, nil
}

// dialServer connects to a server and joins an app with it. The app calls OnClose after it has
// closed the connection.
func dialServer(ctx context.Context, cfg server.Config, a attachment, defs ...Definition) (*App, error) {
	cfg.Broken = func() { a.Meter.Add(telemetry.StreamsBroken, 1) }
	b, err := server.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	stopReporting := reportConnection(a.Meter, b)
	closed := a.OnClose
	a.Backend, a.Tenant, a.Served = b, b.Tenant(), true
	if most := b.MaxPayload(); most > 0 {
		a.MaxPayload = min(cmp.Or(a.MaxPayload, defaultMaxPayload), most)
	}
	a.OnClose = func() error {
		stopReporting()
		err := b.Close()
		if closed != nil {
			err = errors.Join(err, closed())
		}
		return err
	}

	app, err := attach(ctx, a, defs...)
	if err != nil {
		stopReporting()
		return nil, errors.Join(err, b.Close())
	}
	return app, nil
}
