package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/perdure/perdure"
)

// A batch applies one operation to all executions that a query selects and reports each outcome. It
// does not touch executions that start later.
func batches(t *testing.T, s *site) {
	wake := perdure.NewSignal[string]("wake")
	w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return wake.Receive(ctx) })
	app := s.open(w)
	c := caller(t, app)
	start := func(key, region string) {
		t.Helper()
		if _, err := w.Start(c, "", perdure.RawKey(key), perdure.Labels(map[string]string{"region": region})); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		start(fmt.Sprint("k", i), []string{"eu", "us", "us"}[i%3])
	}
	signalled := func(key string) bool {
		return slices.Contains(kindsOf(t, app, w.Execution(perdure.RawKey(key))), "signal_received")
	}
	const us = `label.region = "us" and status = "open"`

	var seen []string
	for e, err := range app.Executions().Batch(t.Context(), us, nil) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e.Ref.Key)
	}
	if slices.Sort(seen); !slices.Equal(seen, []string{"k1", "k10", "k11", "k2", "k4", "k5", "k7", "k8"}) || signalled("k1") {
		t.Errorf("a dry run tells %v", seen)
	}

	var more sync.Once
	refused := errors.New("not this one")
	seen = nil
	for e, err := range app.Executions().Batch(t.Context(), us, func(c perdure.Client, e perdure.Info) error {
		more.Do(func() { start("late", "us") })
		if e.Ref.Key == "k4" {
			return refused
		}
		return wake.Send(c, e.Ref, "up", perdure.RequestID("batch-1"))
	}) {
		if (err != nil) != (e.Ref.Key == "k4") || err != nil && !errors.Is(err, refused) {
			t.Errorf("%s: %v", e.Ref, err)
		}
		seen = append(seen, e.Ref.Key)
	}
	if len(seen) != 8 || slices.Contains(seen, "late") {
		t.Errorf("done to %v", seen)
	}
	for _, key := range seen {
		if key == "k4" {
			continue
		}
		if got, err := w.Execution(perdure.RawKey(key)).Result(c); err != nil || got != "up" {
			t.Errorf("%s = %q, %v", key, got, err)
		}
	}
	for _, key := range []string{"k0", "k4", "late"} {
		if signalled(key) {
			t.Errorf("%s was signalled", key)
		}
	}

	for e, err := range app.Executions().Batch(t.Context(), `status = "open"`, func(c perdure.Client, e perdure.Info) error { return e.Ref.Cancel(c, "enough") }) {
		if err != nil {
			t.Errorf("cancel of %s: %v", e.Ref, err)
		}
	}
	eventually(t, "all are canceled", func() bool {
		n, err := app.Executions().Count(t.Context(), `status = "canceled"`)
		return err == nil && n == 6 // 4 executions of eu, and k4 and late
	})
	for _, err := range app.Executions().Batch(t.Context(), `colour = "red"`, nil) {
		wantError(t, "a batch by nonsense", err, perdure.ErrInvalid, "character 1")
	}
}
