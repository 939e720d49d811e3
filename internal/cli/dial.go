package cli

import (
	"context"
	"net"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/store"
)

// tokenVariable names the environment variable that has the key for a server. The key is not a
// flag, because other users of the machine can read the arguments of a process.
const tokenVariable = "PERDURE_TOKEN"

// serverPatience is how long a command tries to reach a server. A server that restarts is back
// within this time.
const serverPatience = 10 * time.Second

// dialed is a connection to a server. The store itself cannot be reached through it.
type dialed struct{ b *remote.Backend }

// dial connects to the server that a URL names, in the chosen tenant. If chosen is empty, it uses
// the tenant of the key.
func dial(ctx context.Context, c node.Config, t *choice, chosen string) (session, error) {
	cfg, err := remote.ParseURL(c.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Token, err = t.token(); err != nil {
		return nil, err
	}

	if !cfg.PlainText {
		if cfg.TLS, err = t.trust(); err != nil {
			return nil, err
		}
	}

	cfg.Version, cfg.Log, cfg.Tenant, cfg.Patience = c.Version, c.Log, chosen, serverPatience
	b, err := remote.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}

	return dialed{b}, nil
}

// socketLimit is how long a program may take to answer at its socket.
const socketLimit = 2 * time.Second

// dialSocket connects to the program that has a file open, if there is one. If a dead program has
// left a socket, a connection to it fails immediately.
func dialSocket(ctx context.Context, c node.Config) (session, bool) {
	if !programListens(ctx, c.URL) {
		return nil, false
	}
	path, _ := node.SocketPath(c.URL)

	ctx, cancel := context.WithTimeout(ctx, socketLimit)
	defer cancel()
	b, err := remote.Dial(ctx, remote.Config{Addresses: []string{"unix:" + path}, PlainText: true, Version: c.Version, Log: c.Log})
	if err != nil {
		return nil, false
	}
	return dialed{b}, true
}

// programListens reports whether a program listens on the socket next to a file.
func programListens(ctx context.Context, url string) bool {
	path, ok := node.SocketPath(url)
	if !ok || !node.TrustedSocket(url, path) {
		return false
	}
	var d net.Dialer
	probe, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return false
	}
	_ = probe.Close()
	return true
}

func (d dialed) Backend() api.Backend { return d.b }
func (d dialed) Admin() api.Admin     { return d.b.Admin() }
func (d dialed) Store() store.Store   { return nil }
func (d dialed) Close() error         { return d.b.Close() }
