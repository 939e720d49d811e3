package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/prom"
)

// adminKeyVariable names the environment variable that has the admin key. It is not a flag: other
// users of the machine can read the arguments of a process.
const adminKeyVariable = "PERDURE_ADMIN_KEY"

// serveFlags are the flags of serve.
type serveFlags struct {
	listen, keyFile, cert, certKey string
	plain, noMigrate               bool
	grace, drain, lease            time.Duration
	logs                           string
}

func newServe(o *options) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a store over the network", Args: cobra.NoArgs,
		Long: `Serve a store to clients and workers in other processes and other languages. Programs connect with perdure.Dial.

The server listens on one port for gRPC (protocol perdure.v1) and for HTTP: /livez, /readyz and /metrics. Callers need the
admin key, from --admin-key-file or $` + adminKeyVariable + `. Connections from other machines need TLS, unless
--allow-plaintext says otherwise. Stop the server with an interrupt: it lets running calls finish and workers connect elsewhere.`,
		Example: `  PERDURE_ADMIN_KEY=$(cat key) perdure serve --store postgres://localhost/app
  perdure serve --store postgres://db/app --listen :7800 --tls-cert server.pem --tls-key server.key --admin-key-file key`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.serve(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7800", "address to listen on")
	flags.StringVar(&f.keyFile, "admin-key-file", "", "file that has the admin key ($"+adminKeyVariable+" otherwise)")
	flags.StringVar(&f.cert, "tls-cert", "", "file of the certificate, with its chain")
	flags.StringVar(&f.certKey, "tls-key", "", "file of its private key")
	flags.BoolVar(&f.plain, "allow-plaintext", false, "accept connections from other machines without TLS")
	flags.BoolVar(&f.noMigrate, "no-migrate", false, "refuse a store whose schema is not up to date, instead of upgrading it")
	flags.DurationVar(&f.grace, "worker-grace", 30*time.Second, "how long to keep what a worker holds whose connection has broken")
	flags.DurationVar(&f.drain, "drain-timeout", 20*time.Second, "how long running calls may take when the server stops")
	flags.DurationVar(&f.lease, "lease", 0, "how long other nodes wait before they take over from this one (default 10s)")
	flags.StringVar(&f.logs, "log-format", "text", "format of the log: text or json")
	return cmd
}

// serve runs a server until it is interrupted or fails.
func (o *options) serve(ctx context.Context, f *serveFlags) error {
	if remote.IsURL(o.store) {
		return fault.New(fault.Invalid, "--store is the URL of a server; serve needs that of a store, such as postgres://host/database")
	}
	log, err := o.serverLog(f.logs)
	if err != nil {
		return err
	}
	auth, err := adminAuth(f.keyFile)
	if err != nil {
		return err
	}
	secure, err := f.tls()
	if err != nil {
		return err
	}

	cfg := node.ServerConfig{Listen: f.listen, Authenticator: authn.NewKeyring(auth), Tenant: model.DefaultTenant, TLS: secure, Grace: f.grace}
	cfg.Node = node.Config{URL: o.store, Schema: o.schema, Log: log, Version: Version(), NoMigrate: f.noMigrate, LeaseTTL: f.lease}
	s, stop, err := startServer(ctx, cfg)
	if err != nil {
		return err
	}
	log.Info("serving", "address", s.Addr().String(), "tls", secure != nil, "version", Version())
	return o.untilStopped(ctx, s, stop, f.drain)
}

// startServer starts a server with metrics.
func startServer(ctx context.Context, cfg node.ServerConfig) (s *node.Server, unregister func(), err error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg.Node.Meter = telemetry.New()
	unregister, err = prom.Register(registry, cfg.Node.Meter)
	if err != nil {
		return nil, nil, err
	}
	cfg.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second})
	s, err = node.Serve(ctx, cfg)
	if err != nil {
		unregister()
		return nil, nil, err
	}
	return s, unregister, nil
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

// serverLog is the log of a server: it always logs, also without --verbose.
func (o *options) serverLog(format string) (*slog.Logger, error) {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(o.Err, &slog.HandlerOptions{Level: level})), nil
	case "json":
		return slog.New(slog.NewJSONHandler(o.Err, &slog.HandlerOptions{Level: level})), nil
	}
	return nil, fault.New(fault.Invalid, "--log-format is %q, must be text or json", format)
}

// adminAuth lets callers in that have the admin key.
func adminAuth(file string) (*authn.AdminKey, error) {
	key := os.Getenv(adminKeyVariable)
	if file != "" {
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

// tls reads the certificate, and refuses to listen in plain text for other machines.
func (f *serveFlags) tls() (*tls.Config, error) {
	if f.cert == "" && f.certKey == "" {
		if !f.plain && !isLoopback(f.listen) {
			return nil, fault.WithHint(fault.New(fault.Invalid, "%s can be reached from other machines, and there is no certificate", f.listen),
				"give --tls-cert and --tls-key, or allow it with --allow-plaintext")
		}
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(f.cert, f.certKey)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// serverURL is how programs of this machine reach a server.
func serverURL(s *node.Server) string { return fmt.Sprintf("grpc://%s", s.Addr()) }
