package cli

import (
	"context"
	"os"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/store"
)

// tokenVariable names the environment variable that has the key for a server. It is not a flag:
// other users of the machine can read the arguments of a process.
const tokenVariable = "PERDURE_TOKEN"

// dialed is a connection to a server. Nobody behind it sees the store.
type dialed struct{ b *remote.Backend }

// dial connects to the server that a URL names.
func dial(ctx context.Context, c node.Config) (session, error) {
	cfg, err := remote.ParseURL(c.URL)
	if err != nil {
		return nil, err
	}
	cfg.Token, cfg.Version, cfg.Log = os.Getenv(tokenVariable), c.Version, c.Log
	b, err := remote.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return dialed{b}, nil
}

func (d dialed) Backend() api.Backend { return d.b }
func (d dialed) Store() store.Store   { return nil }
func (d dialed) Close() error         { return d.b.Close() }
