package remote_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// Requests without a request id leave no rows behind, also through a server. The client draws ids
// for them, and tells the server when it has the answers. The server keeps an answer under an id
// that the caller gave.
func TestRequestsThroughAServerLeaveNoRows(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "server.db")
	s, err := node.Serve(t.Context(), node.ServerConfig{
		Node: node.Config{URL: "file:" + file}, Listen: "127.0.0.1:0", Authenticator: authn.Open{Tenant: model.DefaultTenant},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }()

	fund := perdure.NewEntity[int]("fund")
	deposit := perdure.NewOperation(fund, "deposit", func(_ perdure.EntityCtx, n *int, by int) (int, error) { *n += by; return *n, nil })
	note, set := perdure.NewSignal[int]("note"), perdure.NewUpdate[int, int]("set")
	wait := perdure.NewWorkflow("wait", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
		set.Handle(ctx, func(_ perdure.WorkflowCtx, n int) (int, error) { return n, nil })
		return 0, ctx.Sleep(time.Hour)
	})
	app, err := perdure.Dial(t.Context(), "grpc://"+s.Addr().String(), fund, wait)
	if err != nil {
		t.Fatal(err)
	}
	c := app.With(t.Context())
	e, err := wait.Start(c, 1)
	if err != nil {
		t.Fatal(err)
	}

	for i := range 20 {
		key := fmt.Sprint("k", i%3)
		if _, err := deposit.Call(c, key, 1); err != nil {
			t.Fatal(err)
		}
		if err := deposit.Send(c, key, 1); err != nil {
			t.Fatal(err)
		}
		if err := note.Send(c, e, i); err != nil {
			t.Fatal(err)
		}
		if _, err := set.Call(c, e, i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := deposit.Call(c, "k0", 1, perdure.RequestID("mine")); err != nil {
		t.Fatal(err)
	}

	awaitRemembered(t, file, 1)
	// Close sends the last receipts.
	if _, err := deposit.Call(c, "k0", 1); err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
	awaitRemembered(t, file, 1)
}

// awaitRemembered waits until a store remembers the given number of answers.
func awaitRemembered(t *testing.T, file string, want int) {
	t.Helper()
	db, err := driver.Open("file:" + file + "?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()

	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var n int
		if err := db.QueryRowContext(t.Context(), "select count(*) from perdure_requests").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the store remembers %d answers, want %d", n, want)
		}
	}
}
