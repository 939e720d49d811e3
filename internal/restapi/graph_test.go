package restapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
)

// graph has the parts of an explanation that these tests read.
type graph struct {
	Nodes []struct {
		Of struct {
			Kind, Workflow, Entity, Key, Name string
		}
		Run, Status string
		Reasons     []struct{ Code, Text string }
	}
	Edges []struct {
		From, To int
		Reason   *int
		HeldBy   bool `json:"held_by"`
	}
	Cut bool
}

// paths writes the edges as sentences.
func (g *graph) paths() string {
	name := func(i int) string {
		of := g.Nodes[i].Of
		return of.Kind + " " + of.Workflow + of.Entity + of.Name + "/" + of.Key
	}
	var all []string
	for _, e := range g.Edges {
		why := "held by"
		if e.Reason != nil {
			why = g.Nodes[e.From].Reasons[*e.Reason].Code
		}
		all = append(all, fmt.Sprintf("%s --%s-> %s", name(e.From), why, name(e.To)))
	}
	return strings.Join(all, "\n")
}

func (w *world) graph(path string) (g graph) {
	w.t.Helper()
	a := w.want(http.StatusOK, "", http.MethodGet, path, "")
	if err := json.Unmarshal([]byte(a.body), &g); err != nil {
		w.t.Fatal(err)
	}
	return g
}

// A graph leads from an execution to its child, to the lock that the child waits for, to the holder
// of the lock, and to the cause. It stops at its depth.
func TestExplainGraph(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	release := perdure.NewSignal[int]("release")
	account := perdure.NewEntity[int]("account")
	_ = perdure.NewOperation(account, "deposit", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		*s += n
		return *s, nil
	})
	hold := perdure.NewWorkflow("hold", func(ctx perdure.WorkflowCtx, key string) (int, error) {
		return 0, ctx.Lock(perdure.LockSet{account.Ref(key)}, func(ctx perdure.WorkflowCtx) error {
			_, err := release.Receive(ctx)
			return err
		})
	})
	parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, key string) (int, error) {
		return hold.Run(ctx, key, perdure.RawKey("second"))
	})
	app, err := attach.Open(w.ctx, attach.Config{Backend: w.server.Node().Backend(), Tenant: model.DefaultTenant}, hold, parent, account)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	w.want(201, "", http.MethodPost, "/v1/executions", `{"workflow":"hold","key":"first","input":"eu-1"}`)
	w.eventually(`"code":"signal"`, "/v1/executions/hold/first/explanation")
	w.want(201, "", http.MethodPost, "/v1/executions", `{"workflow":"parent","key":"p","input":"eu-1"}`)
	w.eventually(`"code":"lock"`, "/v1/executions/hold/second/explanation")
	w.eventually(`"code":"child"`, "/v1/executions/parent/p/explanation")

	g := w.graph("/v1/executions/parent/p/explanation/graph")
	want := `execution parent/p --child-> execution hold/second
execution hold/second --lock-> entity account/eu-1
entity account/eu-1 --held by-> execution hold/first`
	if got := g.paths(); got != want || g.Cut {
		t.Errorf("cut: %v\n%s", g.Cut, got)
	}
	if cause := g.Nodes[len(g.Nodes)-1]; len(cause.Reasons) == 0 || cause.Reasons[0].Code != "signal" || cause.Status != "running" || cause.Run == "" {
		t.Errorf("the cause is %+v", cause)
	}
	if g := w.graph("/v1/executions/parent/p/explanation/graph?depth=1"); len(g.Nodes) != 2 || len(g.Edges) != 1 || !g.Cut {
		t.Errorf("with depth 1: %+v", g)
	}

	w.want(204, "", http.MethodPost, "/v1/executions/hold/first/signal", `{"name":"release","input":1}`)
	w.eventually(`"code":"signal"`, "/v1/executions/hold/second/explanation")
	w.want(204, "", http.MethodPost, "/v1/executions/hold/second/signal", `{"name":"release","input":1}`)
	w.eventually(`"status":"completed"`, "/v1/executions/parent/p")
	if g := w.graph("/v1/executions/parent/p/explanation/graph"); len(g.Nodes) != 1 || g.Nodes[0].Status != "completed" || len(g.Nodes[0].Reasons) != 0 {
		t.Errorf("of a closed execution: %+v", g)
	}
}

// A window of events starts at either end of the history. It contains each event between its first
// and its last event exactly once.
func TestEventWindows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	note := perdure.NewState[string]("note")
	long := perdure.NewWorkflow("long", func(ctx perdure.WorkflowCtx, n int) (string, error) {
		for i := range n {
			if err := note.Set(ctx, fmt.Sprintf("é%d %s", i, strings.Repeat("é", 100))); err != nil {
				return "", err
			}
		}
		return "<script>", nil
	})
	app, err := attach.Open(w.ctx, attach.Config{Backend: w.server.Node().Backend(), Tenant: model.DefaultTenant}, long)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	const n = 2500
	w.want(201, "", http.MethodPost, "/v1/executions", fmt.Sprintf(`{"workflow":"long","key":"1","input":%d}`, n))
	w.eventually(`"status":"completed"`, "/v1/executions/long/1/result?wait=60s")

	const path = "/v1/executions/long/1/events"
	for _, c := range []struct {
		query       string
		first, last int64
	}{
		{"", 0, n + 1},
		{"?limit=3", 0, 2},
		{"?after=7&limit=2", 8, 9},
		{"?last=true&limit=1000", n - 998, n + 1},
		{"?last=true&limit=3&before=1500", 1497, 1499},
		{"?after=1000&before=2200", 1001, 2199},
		{"?after=99999", 0, -1},
	} {
		a := w.want(http.StatusOK, "", http.MethodGet, path+c.query, "")
		seq := c.first
		for line := range strings.Lines(a.body) {
			var e struct {
				Seq    int64
				Output *struct {
					Bytes int
					Text  string
				}
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq != seq {
				t.Fatalf("%s: event %d where %d belongs: %v", c.query, e.Seq, seq, err)
			}
			if e.Output != nil && (len(e.Output.Text) > 80 || e.Output.Bytes < len(e.Output.Text) || strings.ContainsRune(e.Output.Text, '\uFFFD')) {
				t.Fatalf("%s: %+v", c.query, e.Output)
			}
			seq++
		}
		if seq != c.last+1 || a.header.Get("Perdure-Events") != fmt.Sprint(n+2) {
			t.Errorf("%s: up to %d of %s, want %d", c.query, seq-1, a.header.Get("Perdure-Events"), c.last)
		}
	}
	a := w.want(http.StatusOK, `script`, http.MethodGet, fmt.Sprintf("%s/%d/output", path, n+1), "")
	if h := a.header; h.Get("Content-Type") != "application/json" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox") || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
		t.Errorf("%v", h)
	}
}
