package postgres

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/pgtest"
)

// A notification that does not arrive in time proves nothing about a pooler, because the server may
// be overloaded. The hub blames a pooler only if the pooler shares server connections.
func TestLateNotification(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	url := server.NewDatabase(t)
	for name, c := range map[string]struct {
		url  string
		want error
	}{
		"server":                      {url, errLate},
		"pooler of sessions":          {server.StartBouncer(t, pgtest.PoolSession, 20).URL(url), errLate},
		"pooler that shares sessions": {server.StartBouncer(t, pgtest.PoolTransaction, 1).URL(url), errDeaf},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), connectTimeout)
			defer cancel()

			h := &Hub{ctx: t.Context(), channel: "perdure_hint_late"}
			var conns [2]*pgx.Conn
			for i := range conns {
				config, err := pgx.ParseConfig(c.url)
				if err != nil {
					t.Fatal(err)
				}
				config.DefaultQueryExecMode = pgx.QueryExecModeExec
				if conns[i], err = pgx.ConnectConfig(ctx, config); err != nil {
					t.Fatal(err)
				}
				defer h.drop(conns[i])
			}

			// The first connection does not listen, so the greeting never arrives.
			if err := h.probe(ctx, conns[0], conns[1]); !errors.Is(err, c.want) {
				t.Errorf("%v, want: %v", err, c.want)
			}
		})
	}
}
