package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/apidocs"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/flovyn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/notify/nats"
	"github.com/perdure/perdure/internal/restapi"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/otlp"
	"github.com/perdure/perdure/internal/telemetry/prom"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// adminKeyVariable names the environment variable that has the admin key. The key is not a flag,
// because other users of the machine can read the arguments of a process.
const adminKeyVariable = "PERDURE_ADMIN_KEY"

// defaultCallRate is how many calls of one caller a server serves per second. A server with two
// processors cannot serve that many. The limit keeps one caller from using up a large machine.
const defaultCallRate = 50_000

// serveFlags are the flags of serve.
type serveFlags struct {
	listen, keyFile, cert, certKey string
	plain, noMigrate, production   bool
	grace, drain, lease, storeWait time.Duration
	logs                           string
	tenantMetrics                  bool
	config, collector, policies    string
	flovyn                         bool
	peerListen, peerAdvertise      string
	adminListen                    string
	accessLog                      int
	noPeerLink                     bool
	weight                         int
	groups                         string
	clientCA                       string
	tokens                         tokenFlags
	from                           origins
	problems                       []error        // errors of reading the settings
	command                        *cobra.Command // the command that has the flags
	reloads                        *reloader      // what the server reads again
	retainAudit                    time.Duration
	nats                           nats.Config
	useProxy                       bool
	connections, callRate          int
}

func newServe(o *options) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a store over the network", Args: cobra.NoArgs,
		Long: `Serve a store to clients and workers in other processes and other languages. Programs connect with perdure.Dial.

The server listens on one port for gRPC (protocol perdure.v1) and for HTTP: the REST API at /v1, /livez, /readyz and /metrics. Callers need a key: the
admin key, from --admin-key-file or $` + adminKeyVariable + `, a key that perdure key create makes, or a token of the identity provider that
--jwt-issuer names. Connections from other machines need TLS, unless
--allow-plaintext says otherwise. Stop the server with an interrupt: it lets running calls finish and workers connect elsewhere.

Every flag can also be an environment variable ($PERDURE_LISTEN for --listen) or a key of the TOML file that --config names
(tls_cert for --tls-cert). A flag wins over the environment, and the environment over the file.`,
		Annotations: map[string]string{noProfile: "yes"},
		Example: `  PERDURE_ADMIN_KEY=$(cat key) perdure serve --store postgres://localhost/app
  perdure serve --store postgres://db/app --listen :7800 --tls-cert server.pem --tls-key server.key --admin-key-file key`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, problems, err := readSettings(cmd, f.config)
			if err != nil {
				return refuseStart(err)
			}
			f.from, f.problems, f.command = from, problems, cmd
			if f.flovyn {
				if err := joinProblems(problems); err != nil {
					return refuseStart(err)
				}
				return o.serveFlovyn(cmd.Context(), &f)
			}
			return o.serve(cmd.Context(), &f)
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration file in TOML ($"+configVariable+")")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7800", "address to listen on")
	flags.StringVar(&f.peerListen, "peer-listen", "", "address on which the other servers of the cluster connect to this one, host:port or :port (default: a free port on the address that reaches the database)")
	flags.StringVar(&f.peerAdvertise, "peer-advertise", "", "address at which the other servers of the cluster reach --peer-listen, host:port (default: the address that it listens on)")
	flags.BoolVar(&f.noPeerLink, "no-peer-link", false, "open no connections between the servers of the cluster; they use the database instead")
	flags.IntVar(&f.weight, "weight", 100, "share of the shards that this server should own, relative to the other nodes of the cluster; 1 to 10000")
	flags.StringVar(&f.groups, "groups", model.DefaultGroup, "shard groups that this server serves, separated by commas (perdure cluster groups)")
	flags.StringVar(&f.keyFile, "admin-key-file", "", "file that has the admin key ($"+adminKeyVariable+" otherwise)")
	flags.StringVar(&f.policies, "policies", "", "file of Cedar policies that take the place of the default ones (perdure auth policies)")
	flags.StringVar(&f.cert, "tls-cert", "", "file of the certificate, with its chain")
	flags.StringVar(&f.certKey, "tls-key", "", "file of its private key")
	flags.StringVar(&f.clientCA, "tls-client-ca", "", "file of the certificates that sign the certificates of clients; clients then need one")
	f.tokens.add(flags)
	flags.BoolVar(&f.plain, "allow-plaintext", false, "accept connections from other machines without TLS")
	flags.BoolVar(&f.production, "production", false, "refuse what is only good enough for development: a superuser of the database, passwords on the command line, limits that are switched off, and a Flovyn contract without authentication; do not serve gRPC reflection")
	flags.BoolVar(&f.noMigrate, "no-migrate", false, "refuse a store whose schema is not up to date, instead of upgrading it")
	flags.Var(span(&f.grace, 30*time.Second), "worker-grace", "how long to keep what a worker holds whose connection has broken")
	flags.Var(span(&f.drain, 20*time.Second), "drain-timeout", "how long running calls may take when the server stops")
	flags.Var(span(&f.storeWait, 30*time.Second), "store-wait", "how long to try again at start while the database does not answer")
	flags.Var(span(&f.lease, 0), "lease", "how long other nodes wait before they take over from this one (default 10s)")
	flags.Var(spanOrNone{span(&f.retainAudit, node.DefaultRetainAudit)}, "retain-audit", "how long the audit log keeps entries; 0 for no limit")
	flags.StringVar(&f.nats.URL, "nats", "", "URL of NATS servers that carry hints between servers and changes to subscribers, such as nats://localhost:4222 ($PERDURE_NATS)")
	flags.StringVar(&f.nats.Credentials, "nats-credentials", "", "file with the credentials of a NATS user")
	flags.StringVar(&f.nats.Prefix, "nats-prefix", nats.DefaultPrefix, "first words of the subjects on NATS")
	flags.IntVar(&f.connections, "max-connections", node.DefaultConnections, "most open connections; 0 for no limit")
	flags.IntVar(&f.callRate, "call-rate", defaultCallRate, "most calls of one caller in a second; 0 for no limit")
	flags.BoolVar(&f.useProxy, "use-proxy", false, "make HTTP requests through the proxy of the environment ($HTTPS_PROXY); without it, the server refuses to start when there is one")
	flags.StringVar(&f.collector, "otlp-endpoint", "", "URL of an OpenTelemetry collector for metrics and spans, such as http://localhost:4318 ($OTEL_EXPORTER_OTLP_ENDPOINT)")
	flags.BoolVar(&f.tenantMetrics, "metrics-by-tenant", false, "add the tenant as a label to the metrics of workflows, tasks, queues, limits and entities")
	flags.BoolVar(&f.flovyn, "flovyn-contract", false, "take the configuration as containers of Flovyn servers do: $DATABASE_URL, $SERVER_PORT, $GRPC_SERVER_PORT, $CONFIG_FILE")
	flags.IntVar(&f.accessLog, "access-log", 0, "log one of so many requests that succeed, and every request that fails (default: only requests that the server fails)")
	flags.StringVar(&f.adminListen, "admin-listen", "", "address of the profiles of the process (/debug/pprof), for admins only")
	flags.StringVar(&f.logs, "log-format", "text", "format of the log: text or json")
	return cmd
}

// serve runs a server until it is interrupted or fails.
func (o *options) serve(ctx context.Context, f *serveFlags) error {
	parts, err := o.checkServe(ctx, f)
	if err != nil {
		return refuseStart(err)
	}
	defer parts.stop()
	log, secure := parts.log, parts.secure

	cfg := node.ServerConfig{Listen: f.listen, Authenticator: parts.ring, Authorizer: parts.policies, Problems: f.reloads.problems, Tenant: model.DefaultTenant, TLS: secure, Grace: f.grace, Web: restAPI(false)}
	cfg.Node = o.nodeConfig(f, log)
	return o.runServer(ctx, f, cfg)
}

// nodeConfig returns the configuration of the node of a server.
func (o *options) nodeConfig(f *serveFlags, log *slog.Logger) node.Config {
	return node.Config{
		URL: o.store, Schema: o.schema, Databases: o.databaseURLs(), Log: log, Version: Version(), NoMigrate: f.noMigrate, LeaseTTL: f.lease, PeerListen: f.peerListen, PeerAdvertise: f.peerAdvertise, NoPeerLink: f.noPeerLink, Weight: f.weight, Groups: splitList(f.groups),
		Production: f.production, Private: true, Wrap: o.wrap, FileSystem: o.machine.fileSystem,
	}
}

// runServer runs a server until it is interrupted or fails.
func (o *options) runServer(ctx context.Context, f *serveFlags, cfg node.ServerConfig) error {
	log := cfg.Node.Log
	// From now on, SIGHUP no longer ends the process.
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	if cfg.Node.RetainAudit = f.retainAudit; f.retainAudit == 0 {
		cfg.Node.RetainAudit = -1 // no limit
	}
	if f.nats.URL != "" {
		cfg.Node.Carrier = func(cluster string) (node.Carrier, error) {
			c := f.nats
			c.Cluster, c.Log = cluster, log
			return nats.Open(c)
		}
	}
	cfg.Services = o.services
	if cfg.MaxConnections, cfg.CallRate = f.connections, f.callRate; f.connections == 0 {
		cfg.MaxConnections = -1 // no limit
	}
	o.machine.limitMemory(log)
	defer o.machine.floorHeap()()
	cfg.AccessLog, cfg.AdminListen, cfg.Profiles = f.accessLog, f.adminListen, profiler()
	cfg.Node.Meter = telemetry.New()
	if f.tenantMetrics {
		cfg.Node.Meter = telemetry.NewByTenant()
	}
	export, err := f.export(ctx, &cfg)
	if err != nil {
		return refuseStart(err)
	}
	s, stop, err := startServerWithin(ctx, cfg, f.storeWait)
	if err != nil {
		return errors.Join(refuseStart(err), export(ctx))
	}
	if s.AdminAddr() != nil {
		log.Info("profiles are at /debug/pprof", "address", s.AdminAddr().String())
	}
	log.Info("serving", "address", s.Addr().String(), "tls", cfg.TLS != nil, "version", Version())
	watching, unwatch := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() {
		f.reloads.watch(watching, again, reloading{note: s.Node().Audit().Note, setAccessLog: s.SetAccessLog})
	})
	err = o.untilStopped(ctx, s, stop, f.drain)
	unwatch()
	watched.Wait()

	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTime)
	defer cancel()
	if failed := export(within); failed != nil {
		log.Warn("the last metrics and spans could not be exported", "error", failed)
	}
	return err
}

// restAPI returns the constructor of the REST API. If local is true, the API needs no key.
func restAPI(local bool) func(node.Parts) (node.Web, error) {
	return func(p node.Parts) (node.Web, error) {
		return restapi.New(restapi.Config{
			Backend: p.Backend, Admin: p.Admin, Authenticator: p.Authenticator, Authorizer: p.Authorizer, Local: local, Log: p.Log, Version: p.Version, MaxPayload: p.MaxPayload, Journal: p.Journal,
		})
	}
}

// profiler answers requests for profiles. It does not show the arguments of the process.
func profiler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	return mux
}

// exportTime is how long a server that stops tries to send its last metrics and spans.
const exportTime = 5 * time.Second

// export starts to send metrics and spans to a collector, if there is one, until the caller calls
// end.
func (f *serveFlags) export(ctx context.Context, cfg *node.ServerConfig) (end func(context.Context) error, err error) {
	if !otlp.Wanted(f.collector) {
		return func(context.Context) error { return nil }, nil
	}
	e, err := otlp.Start(ctx, otlp.Config{Endpoint: f.collector, Version: Version(), Meter: cfg.Node.Meter, Log: cfg.Node.Log})
	if err != nil {
		return nil, err
	}
	cfg.Node.Tracer = tracing.New(e.Tracer())
	return e.Close, nil
}

// startServer starts a server with metrics.
func startServer(ctx context.Context, cfg node.ServerConfig) (s *node.Server, unregister func(), err error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if cfg.Node.Meter == nil {
		cfg.Node.Meter = telemetry.New()
	}
	unregister, err = prom.Register(registry, cfg.Node.Meter)
	if err != nil {
		return nil, nil, err
	}

	cfg.Docs = apidocs.Page{Title: "Flovyn contract of Perdure", Base: flovyn.DocsPath, Document: flovyn.DocumentPath}.Handler()
	cfg.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second})
	cfg.Operations = restapi.Operations()
	s, err = node.Serve(ctx, cfg)
	if err != nil {
		unregister()
		return nil, nil, err
	}

	return s, unregister, nil
}

// storePause is how long a server that starts waits before it tries its store again. Before that,
// the store itself has tried for some seconds.
const storePause = time.Second

// startServerWithin is like startServer, but it tries again for a while if the database does not
// answer. A server and its database often start at the same time, and the database may take longer
// or be restarted.
func startServerWithin(ctx context.Context, cfg node.ServerConfig, patience time.Duration) (*node.Server, func(), error) {
	began := time.Now()
	for {
		s, unregister, err := startServer(ctx, cfg)
		if err == nil || ctx.Err() != nil || !node.StoreUnreachable(err) {
			return s, unregister, err
		}
		waited := time.Since(began)
		pause, again := pauseBeforeStart(waited, patience)
		shown := waited.Round(time.Second)
		if !again {
			return nil, nil, fault.WithHint(fault.New(fault.KindOf(err), "the database has not answered within %s: %w", shown, err), "--store-wait sets how long the server waits for it")
		}
		cfg.Node.Log.Warn("the database does not answer; the server tries again", "waited", shown.String(), "patience", patience.String(), "error", err)

		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(pause):
		}
	}
}

// pauseBeforeStart returns how long a server waits before it tries its store again. It returns
// false if the server has waited for as long as it may. The last attempt begins when the patience
// ends.
func pauseBeforeStart(waited, patience time.Duration) (pause time.Duration, again bool) {
	return min(storePause, patience-waited), waited < patience
}

// untilStopped waits until the command is interrupted or the server fails, and closes the server.
func (o *options) untilStopped(ctx context.Context, s *node.Server, unregister func(), drain time.Duration) error {
	ctx, ignore := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer ignore()
	defer unregister()
	var err error
	select {
	case <-ctx.Done():
	case err = <-s.Failed():
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	return errors.Join(err, s.Close(within))
}

// serverLog returns the log of a server, which logs even without --verbose. The level can change
// while the server runs.
func (o *options) serverLog(format string) (log *slog.Logger, level *slog.LevelVar, err error) {
	level = &slog.LevelVar{}
	level.Set(levelOf(o.verbose))
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(o.Err, &slog.HandlerOptions{Level: level})), level, nil
	case "json":
		return slog.New(slog.NewJSONHandler(o.Err, &slog.HandlerOptions{Level: level})), level, nil
	}
	return nil, nil, fault.New(fault.Invalid, "--log-format is %q, must be text or json", format)
}

// adminAuth returns the authenticator for callers with the admin key.
func adminAuth(file string) (*authn.AdminKey, error) {
	key := os.Getenv(adminKeyVariable)
	if file != "" {
		if err := checkPrivate("the admin key", file); err != nil {
			return nil, err
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fault.New(fault.Invalid, "read the admin key: %w", err)
		}
		key = strings.TrimSpace(string(b))
	}

	if key == "" {
		return nil, fault.WithHint(fault.New(fault.Invalid, "the server has no admin key"),
			"give it one with --admin-key-file or $%s, or use perdure dev, which needs none", adminKeyVariable)
	}

	return authn.NewAdminKey(key, model.DefaultTenant)
}

// checkListen refuses a text that is not an address to listen on.
func checkListen(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fault.New(fault.Invalid, "%s is %q, must be host:port, such as 127.0.0.1:7800: %w", flag, address, err)
	}
	return nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// serverURL returns the URL at which programs of this machine reach a server.
func serverURL(s *node.Server) string { return fmt.Sprintf("grpc://%s", s.Addr()) }
