package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/wire"
)

// Defaults of a Config.
const (
	defaultPatience = time.Minute
	defaultMaxReply = 64<<20 + 1<<20 // the largest reply of a server, and some room
)

// Times of connections.
const (
	// Pauses between attempts to connect. They are jittered, so that clients of a server that comes
	// back do not arrive together. A restarted server waits a while for its workers, so a pause
	// must be much shorter than that time.
	firstReconnect = 100 * time.Millisecond
	maxReconnect   = 2 * time.Second
	// connectTime is how long the client waits until a server has answered on a new connection.
	// When thousands of workers come back at the same time, a server answers each of them late. If
	// a client gave up early and tried again, the server would have to do the same work again, and
	// the other clients would wait even longer. The client tries its other addresses at the same
	// time.
	connectTime = 30 * time.Second
	// If a connection with calls is silent for this long, the client pings the server. Servers
	// allow one ping per 10 s.
	silence     = 20 * time.Second
	pingTimeout = 10 * time.Second
)

// unixScheme is the prefix of the address of a Unix socket.
const unixScheme = "unix:"

// Config says how to reach a server, and who the caller is.
type Config struct {
	// Addresses are host:port, or unix: and a path. The client uses one address at a time, in
	// random order, and moves to the next one when the current one fails.
	Addresses []string
	// TLS configures TLS for the connection. If it is nil, the client trusts the root certificates
	// of the system.
	TLS *tls.Config
	// PlainText turns TLS off.
	PlainText bool
	// Token is the key of the caller; empty for none. The client refuses to send it in plain text
	// to another machine, unless PlainTextToken is set.
	Token          string
	PlainTextToken bool
	// Tenant chooses the tenant. Only a caller with an admin key, or with several tenants, may
	// choose. Empty means the tenant of the token.
	Tenant string
	// Version is the version of the program, for the log of the server.
	Version string
	// Log receives the messages of the client; nil for none.
	Log *slog.Logger
	// Patience is how long a call tries at most to reach a server. A deadline of the call may end
	// it earlier. Default 1 min.
	Patience time.Duration
	// MaxReply is the largest reply that the client accepts, in bytes. Default 65 MiB.
	MaxReply int
	// NoBundles makes every call go alone, as calls to servers of older versions do. It is for
	// comparisons and tests.
	NoBundles bool
	// If a stream of the worker ends on which the server had answered, the client calls Broken and
	// opens another stream. Broken may be nil.
	Broken func()
	// Dial opens a connection to an address. If it is nil, the client uses the network. It is for
	// tests and tunnels.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Patience = cmp.Or(c.Patience, defaultPatience)
	c.MaxReply = cmp.Or(c.MaxReply, defaultMaxReply)
	c.Version = cmp.Or(c.Version, "unknown")
	return c
}

// check returns everything that is wrong with a config.
func (c *Config) check() error {
	var problems []error
	if len(c.Addresses) == 0 {
		problems = append(problems, errors.New("there is no address"))
	}
	for _, a := range c.Addresses {
		if err := checkAddress(a); err != nil {
			problems = append(problems, err)
		}
		if c.Token != "" && c.PlainText && !c.PlainTextToken && !local(a) {
			problems = append(problems, fmt.Errorf("the token would go to %s in plain text: use TLS, or allow it", a))
		}
	}
	if c.PlainText && c.TLS != nil {
		problems = append(problems, errors.New("it has a TLS configuration and asks for plain text"))
	}
	if strings.ContainsFunc(c.Token+c.Tenant+c.Version, func(r rune) bool { return r < ' ' || r > '~' }) {
		problems = append(problems, errors.New("the token, the tenant and the version must be printable ASCII"))
	}
	if c.Patience < 0 || c.MaxReply < 0 {
		problems = append(problems, fmt.Errorf("the patience is %s and the largest reply %d bytes, must be >= 0", c.Patience, c.MaxReply))
	}

	if len(problems) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "connect: %w", errors.Join(problems...))
}

func checkAddress(a string) error {
	if path, ok := strings.CutPrefix(a, unixScheme); ok {
		if path == "" {
			return fmt.Errorf("address %q has no path", a)
		}
		return nil
	}
	if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
		return fmt.Errorf("address %q is not host:port", a)
	}
	return nil
}

// local reports whether an address is on this machine.
func local(a string) bool {
	if strings.HasPrefix(a, unixScheme) {
		return true
	}
	host := hostOf(a)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func hostOf(a string) string {
	host, _, err := net.SplitHostPort(a)
	if err != nil {
		return "localhost" // a Unix socket
	}
	return host
}

// connect prepares the connection. gRPC connects in the background, and again when the connection
// breaks.
func (c *Config) connect() (*grpc.ClientConn, *servers, error) {
	from := manual.NewBuilderWithScheme("perdure")
	state := resolver.State{}
	for _, a := range c.Addresses {
		// gRPC ignores the name in the TLS configuration when an address has one.
		name := hostOf(a)
		if c.TLS != nil && c.TLS.ServerName != "" {
			name = c.TLS.ServerName
		}
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a, ServerName: name})
	}
	from.InitialState(state)

	conn, err := grpc.NewClient("perdure:///servers", append(c.options(), grpc.WithResolvers(from))...)
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "connect: %w", err)
	}
	return conn, &servers{resolver: from, all: state.Addresses, resolve: net.DefaultResolver.LookupHost, left: func() {}}, nil
}

func (c *Config) options() []grpc.DialOption {
	transport := insecure.NewCredentials()
	if !c.PlainText {
		transport = credentials.NewTLS(c.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent("perdure-go/" + c.Version),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":true}}]}`),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstReconnect, Multiplier: 1.6, Jitter: 0.3, MaxDelay: maxReconnect},
			MinConnectTimeout: connectTime,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silence, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.MaxReply)),
		grpc.WithStaticStreamWindowSize(wire.CallWindow), grpc.WithStaticConnWindowSize(wire.ConnWindow),
	}

	if c.Token != "" || c.Tenant != "" {
		options = append(options, grpc.WithPerRPCCredentials(credential{c.Token, c.Tenant, !c.PlainText}))
	}
	if dial := c.dialer(); dial != nil {
		options = append(options, grpc.WithContextDialer(dial))
	}
	return options
}

// dialer returns a function that opens connections, or nil if all addresses use plain TCP.
func (c *Config) dialer() func(context.Context, string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial
	}
	for _, a := range c.Addresses {
		if strings.HasPrefix(a, unixScheme) {
			return dialAny
		}
	}
	return nil
}

func dialAny(ctx context.Context, a string) (net.Conn, error) {
	var d net.Dialer
	if path, ok := strings.CutPrefix(a, unixScheme); ok {
		return d.DialContext(ctx, "unix", path)
	}
	return d.DialContext(ctx, "tcp", a)
}

// credential adds the token and the tenant to every call.
type credential struct {
	token, tenant string
	secure        bool
}

// GetRequestMetadata returns the headers of a call.
func (c credential) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	header := map[string]string{}
	if c.token != "" {
		header["authorization"] = "Bearer " + c.token
	}
	if c.tenant != "" {
		header["perdure-tenant"] = c.tenant
	}
	return header, nil
}

// RequireTransportSecurity makes gRPC refuse a connection in plain text, unless the config allowed
// it.
func (c credential) RequireTransportSecurity() bool { return c.secure }
