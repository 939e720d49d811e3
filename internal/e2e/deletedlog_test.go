package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// The test deletes the write-ahead log of an SQLite file under a working app. Callers get an error
// that says so, and the next process finds all acknowledged work.
func TestDeletedLogUnderLoad(t *testing.T) {
	t.Parallel()
	s := newSite(t, "sqlite")
	double := perdure.NewWorkflow("double", func(_ perdure.WorkflowCtx, n int) (int, error) { return 2 * n, nil })
	app, err := s.cfg.Open(t.Context(), s.url, double)
	if err != nil {
		t.Fatal(err)
	}

	c := caller(t, app)
	acked := 0
	for ; err == nil; acked++ {
		if acked == 20 {
			if err := os.Remove(s.path + "-wal"); err != nil {
				t.Fatal(err)
			}
		}
		_, err = double.Run(c, acked, perdure.RawKey(fmt.Sprint(acked)))
	}
	acked-- // the last call failed
	for _, words := range []string{s.path + "-wal was moved or deleted", "every commit was saved in " + s.path, "restart the process"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not say %q", err, words)
		}
	}
	if err := app.Close(); err == nil || !strings.Contains(err.Error(), "-wal was moved or deleted") {
		t.Errorf("close: %v", err)
	}

	app = s.open(double)
	c = caller(t, app)
	for n := range acked {
		x := double.Execution(perdure.RawKey(fmt.Sprint(n)))
		if got, err := x.Result(c); got != 2*n || err != nil {
			t.Fatalf("execution %d of %d that were acknowledged: %d, %v", n, acked, got, err)
		}
	}
}
