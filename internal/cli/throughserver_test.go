package cli

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
)

// ThroughVariable makes the commands of scripts use a server instead of the store itself.
const ThroughVariable = "PERDURE_TEST_THROUGH_SERVER"

// throughKey is the admin key of the servers that the scripts use.
const throughKey = "0123456789abcdef-through"

// ownStore are the commands that, according to docs/cli.md, only work on a store or need no store.
// The scripts run them unchanged.
var ownStore = []string{"migrate", "serve", "dev", "bench", "stress", "version", "auth", "config", "completion", "help"}

// MainThroughServer runs a command as Main does. If the command names a store that exists and that
// no program has open, MainThroughServer starts a server on the store, and makes the command use
// that server instead.
func MainThroughServer(ctx context.Context, args []string, s Streams) int {
	rest, url := withoutStore(args)
	path, isFile := strings.CutPrefix(url, "file:")
	_, missing := os.Stat(path)
	if os.Getenv(ThroughVariable) == "" || len(rest) == 0 || slices.Contains(ownStore, rest[0]) || !isFile || missing != nil {
		return Main(ctx, args, s)
	}
	if used, ok := dialSocket(ctx, node.Config{URL: url}); ok {
		return errorCode(s, used.Close(), Main(ctx, args, s))
	}

	server, err := serveForCommand(ctx, url)
	if err != nil {
		return errorCode(s, err, 98)
	}
	err = errors.Join(os.Unsetenv("PERDURE_STORE"), os.Setenv(tokenVariable, throughKey))
	if rest[0] == "__complete" { // __complete must be the first word, and the last word is the text to complete
		rest = slices.Insert(rest, len(rest)-1, "--server", serverURL(server))
	} else {
		rest = append([]string{"--server", serverURL(server)}, rest...)
	}
	code := Main(ctx, rest, s)

	within, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return errorCode(s, errors.Join(err, server.Close(within)), code)
}

// errorCode prints an error of the test itself.
func errorCode(s Streams, err error, code int) int {
	if err != nil {
		_, _ = s.Err.Write([]byte(err.Error() + "\n"))
		return 98
	}
	return code
}

// withoutStore removes --store from the arguments of a command.
func withoutStore(args []string) (rest []string, url string) {
	url = os.Getenv("PERDURE_STORE")
	for i := 0; i < len(args); i++ {
		value, joined := strings.CutPrefix(args[i], "--store=")
		switch {
		case args[i] == "--":
			return append(rest, args[i:]...), url
		case args[i] == "--server" || args[i] == "--profile":
			return args, ""
		case joined:
			url = value
		case args[i] == "--store" && i+1 < len(args):
			i++
			url = args[i]
		default:
			rest = append(rest, args[i])
		}
	}

	if url == "" || remote.IsURL(url) {
		return args, ""
	}
	return rest, url
}

// serveForCommand starts a server on a store.
func serveForCommand(ctx context.Context, url string) (*node.Server, error) {
	auth, err := authn.NewAdminKey(throughKey, model.DefaultTenant)
	if err != nil {
		return nil, err
	}
	policies, err := readPolicies("")
	if err != nil {
		return nil, err
	}
	cfg := node.ServerConfig{Listen: "127.0.0.1:0", Authenticator: authn.NewKeyring(auth), Authorizer: policies, Tenant: model.DefaultTenant}
	cfg.Node = node.Config{URL: url, Version: Version()}
	return node.Serve(ctx, cfg)
}
