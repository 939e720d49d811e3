package postgres_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store/postgres"
)

// Open survives a connection that is dropped at any of its requests, including the commit of the
// migrations.
func TestOpenRetriesDroppedConnection(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for _, f := range []pgproxy.Fault{pgproxy.Reset, pgproxy.DropReply} {
		for n := 1; ; n += stride {
			base := server.NewDatabase(t)
			proxy := pgproxy.New(t, server.Addr())
			trigger := proxy.Inject(pgproxy.Rule{Fault: f, Nth: n, Match: func(pgproxy.Request) bool { return true }})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			s, err := postgres.Open(ctx, postgres.Config{URL: proxy.URL(base), AllowUnsafe: true})
			cancel()
			if err != nil {
				t.Fatalf("%s at request %d: %v", f, n, err)
			}

			_ = s.Close()
			if trigger.Cancel() { // Open makes fewer requests than n
				if n < 5 {
					t.Errorf("%s: Open made %d requests only", f, n-1)
				}
				break
			}
		}
	}
}

// Open waits for a server that is starting. At the deadline it gives up with an error that says how
// often it tried.
func TestOpenWaitsForServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	base := server.NewDatabase(t)
	if err := server.Stop(pgtest.Fast); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := postgres.Open(ctx, postgres.Config{URL: base, AllowUnsafe: true})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), "attempts in") {
		t.Errorf("the server does not listen: %v", err)
	}

	opened := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := postgres.Open(ctx, postgres.Config{URL: base, AllowUnsafe: true})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("a server that starts: %v", err)
	}
}

// If a retry cannot fix an error, Open fails immediately.
func TestOpenDoesNotRetryInVain(t *testing.T) {
	t.Parallel()
	base := pgtest.URL(t)
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	password, missing, encrypted := *u, *u, *u
	password.User = url.UserPassword(u.User.Username(), "wrong")
	missing.Path = "/nothing"
	encrypted.RawQuery = "sslmode=require"

	for name, bad := range map[string]*url.URL{"password": &password, "database": &missing, "encryption": &encrypted} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: bad.String(), AllowUnsafe: true})
		if err == nil || strings.Contains(err.Error(), "attempts in") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
