package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgproxy"
)

// While the store is away, no interface of the owner answers from memory. Each of them says that it
// cannot reach the store, and so does the command line. Metrics that need the store have no value
// during that time, because a value such as 0 stranded executions would wrongly say that all is
// well. The error of a caller whose deadline passes also says that the store is away. When the
// store is back, the execution continues.
func TestEveryFaceSaysThatTheStoreIsAway(t *testing.T) {
	t.Parallel()
	for _, refuses := range []bool{false, true} {
		t.Run(map[bool]string{false: "it does not answer", true: "it refuses connections"}[refuses], func(t *testing.T) {
			t.Parallel()
			if !refuses && testing.Short() {
				t.Skip("waits for the time limits of connections and commands, most of a minute; a part of make test-long")
			}
			s := newSite(t, "postgres")
			server, err := url.Parse(s.url)
			must(t, err)
			proxy := pgproxy.New(t, server.Host)
			s.url = proxy.URL(s.url)
			w := &stalls{t: t, s: s}
			metrics := prometheus.NewRegistry()
			s.cfg.Metrics = metrics
			flow := perdure.NewWorkflow("flow", waitsForWord)
			app := s.open(flow, stallBox)
			x := mustStart(t, caller(t, app), flow, "x", perdure.RawKey("x"))
			reason(t, app, x, "signal word")
			eventually(t, "all metrics have values", func() bool { return len(storeMetrics(t, metrics)) == len(needStore) })

			if refuses {
				proxy.Retarget("127.0.0.1:1")
				proxy.CutAll()
			} else {
				proxy.Blackhole()
			}
			w.askAway(app, x)
			var commands sync.WaitGroup // each one waits for a while before it gives up
			for _, args := range [][]string{{"doctor"}, {"workflow", "explain", "flow/x"}, {"workflow", "list"}, {"queue", "list"}} {
				commands.Go(func() {
					if text, code := w.perdureCLI(args...); code != 5 || !strings.Contains(text, "away") {
						t.Errorf("perdure %s: exit code %d, %s", strings.Join(args, " "), code, text)
					}
				})
			}
			commands.Wait()
			eventually(t, "the metrics that need the store have no values", func() bool { return len(storeMetrics(t, metrics)) == 0 })

			proxy.Retarget(server.Host)
			proxy.Heal()
			c := caller(t, app)
			eventually(t, "it takes a signal again", func() bool {
				return !errors.Is(sendOnce(c, x), perdure.ErrUnavailable)
			})
			got, err := x.Result(c)
			equal(t, "the result", got, err, "go")
			eventually(t, "the metrics have values again", func() bool { return len(storeMetrics(t, metrics)) == len(needStore) })
		})
	}
}

// needStore are the metrics whose value could be wrong while the node cannot reach the store.
var needStore = []string{
	"perdure_nodes", "perdure_slot_waiters", "perdure_store_clock_ahead_seconds",
	"perdure_workflow_runs_quarantined", "perdure_workflow_runs_stranded",
}

// storeMetrics returns the metrics of needStore that have a value, which may be 0.
func storeMetrics(t *testing.T, metrics *prometheus.Registry) (names []string) {
	t.Helper()
	families, err := metrics.Gather()
	must(t, err)
	for _, f := range families {
		if len(f.GetMetric()) > 0 && slices.Contains(needStore, f.GetName()) {
			names = append(names, f.GetName())
		}
	}
	return names
}

// sendOnce sends a signal under a fixed request id, because an earlier attempt may have arrived.
func sendOnce(c perdure.Client, x perdure.Execution[string]) error {
	return stallWord.Send(c, x, "go", perdure.RequestID("once"))
}

// askAway asks the owner about an execution while the store is away.
func (w *stalls) askAway(app *perdure.App, x perdure.Execution[string]) {
	w.t.Helper()
	last := func(all func(func(perdure.Info, error) bool)) (err error) {
		for info, failed := range all {
			if err = failed; failed == nil {
				w.t.Errorf("listed as %+v", info)
			}
		}
		return err
	}

	var wg sync.WaitGroup
	defer wg.Wait()
	for what, do := range map[string]func(context.Context) error{
		"describe": func(ctx context.Context) error { _, err := app.Executions().Describe(ctx, x); return err },
		"list":     func(ctx context.Context) error { return last(app.Executions().List(ctx, "")) },
		"stranded": func(ctx context.Context) error { return last(app.Executions().Stranded(ctx)) },
		"queues":   func(ctx context.Context) error { _, err := app.Queues().List(ctx); return err },
		"a state":  func(ctx context.Context) error { _, _, err := stallBox.Get(app.With(ctx), "k"); return err },
		"a result": func(ctx context.Context) error { _, err := x.Result(app.With(ctx)); return err },
		"a signal": func(ctx context.Context) error { return sendOnce(app.With(ctx), x) },
		"a start": func(ctx context.Context) error {
			_, err := perdure.DeclareWorkflow[string, string]("flow").Start(app.With(ctx), "x")
			return err
		},
		"a call": func(ctx context.Context) error { _, err := stallPut.Call(app.With(ctx), "k", 1); return err },
	} {
		wg.Go(func() {
			untilExplained(w.t, time.Second, func(limit time.Duration) string {
				ctx, cancel := context.WithTimeout(w.t.Context(), limit)
				defer cancel()
				err := do(ctx)
				if err != nil && (strings.Contains(err.Error(), "away") || strings.Contains(err.Error(), "store accepts no commits")) {
					return ""
				}
				return fmt.Sprintf("%s: %v, want an error that says that the store is away", what, err)
			})
		})
	}
}
