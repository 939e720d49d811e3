package node_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/payload"
)

// A worker is connected to a server with a smaller limit of payloads than its own. Values above the
// limit of the server fail in the worker, with the error that they have in process, and values
// within the limit do not. A worker whose own limit is smaller keeps it.
func TestPayloadLimitOfTheServer(t *testing.T) {
	t.Parallel()
	const server, own = 1000, 500
	served, err := node.Serve(t.Context(), node.ServerConfig{
		Node:   node.Config{URL: "memory:", MaxPayload: server},
		Listen: "127.0.0.1:0", Authenticator: authn.Open{Tenant: "default"}, Tenant: "default",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after all subtests
		if err := served.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})

	for name, c := range map[string]struct {
		dialer perdure.Dialer
		most   int
	}{
		"the default":               {perdure.Dialer{}, server},
		"larger than the server's":  {perdure.Dialer{MaxPayload: 5000}, server},
		"smaller than the server's": {perdure.Dialer{MaxPayload: own}, own},
		"another format":            {perdure.Dialer{Payloads: payload.Codec{Format: payload.Msgpack}}, server},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPayloadLimit(t, served, c.dialer, c.most)
		})
	}
}

func testPayloadLimit(t *testing.T, served *node.Server, d perdure.Dialer, most int) {
	t.Helper()
	// Workers of other subtests do not have this code.
	prefix := strings.ReplaceAll(t.Name(), "/", "-")
	words := func(n int) string { return strings.Repeat("x", n) }
	echo := perdure.NewActivity(prefix+"echo", func(_ context.Context, in string) (int, error) { return len(in), nil })
	task := perdure.NewActivity(prefix+"task", func(_ context.Context, n int) (string, error) { return words(n), nil }, perdure.OnQueue(prefix))
	child := perdure.NewWorkflow(prefix+"child", func(_ perdure.WorkflowCtx, in string) (int, error) { return len(in), nil })
	note := perdure.NewState[string]("note")
	held := perdure.NewEntity[string](prefix + "held")
	put := perdure.NewOperation(held, "put", func(_ perdure.EntityCtx, s *string, n int) (int, error) {
		*s = words(n)
		return n, nil
	})

	type request struct {
		What string
		N    int
	}
	code := perdure.NewWorkflow(prefix+"wf", func(ctx perdure.WorkflowCtx, r request) (string, error) {
		var err error
		switch r.What {
		case "result of step":
			_, err = perdure.Do(ctx, "grow", func(context.Context) (string, error) { return words(r.N), nil })
		case "input of activity":
			_, err = echo.Run(ctx, words(r.N))
		case "output of activity":
			_, err = task.Run(ctx, r.N)
		case "input of workflow":
			_, err = child.Run(ctx, words(r.N))
		case "value of state":
			err = note.Set(ctx, words(r.N))
		case "state of entity":
			_, err = put.Call(ctx, "k", r.N)
		default:
			return words(r.N), nil
		}
		return "", err
	})

	app, err := d.Dial(t.Context(), "grpc://"+served.Addr().String(), code, child, echo, task, held)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	c := app.With(t.Context())
	for _, what := range []string{
		"result of step", "input of activity", "output of activity", "input of workflow", "value of state", "state of entity", "output of workflow",
	} {
		if _, err := code.Run(c, request{what, most - 20}, perdure.RawKey("fits "+what)); err != nil {
			t.Errorf("%s: a value within the limit: %v", what, err)
		}
		_, err := code.Run(c, request{what, most + 20}, perdure.RawKey("over "+what))
		if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: a value above the limit: %v", what, err)
		}
	}
}
