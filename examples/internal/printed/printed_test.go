package printed_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/examples/internal/printed"
)

func TestText(t *testing.T) {
	t.Parallel()
	var out printed.Text
	out.Say("one %d", 1)
	fmt.Fprintln(&out, "two")
	if diff := printed.Diff(out.String(), "one 1", "two"); diff != "" {
		t.Error(diff)
	}
	for _, lines := range [][]string{nil, {"one 1"}, {"two", "one 1"}, {"one 1", "two", ""}} {
		if printed.Diff(out.String(), lines...) == "" {
			t.Errorf("%q has the lines %q", &out, lines)
		}
	}
}

func TestTextOfManyGoroutines(t *testing.T) {
	t.Parallel()
	var out printed.Text
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				out.Say("line")
				_ = out.String()
			}
		})
	}
	wg.Wait()
	if n := strings.Count(out.String(), "line\n"); n != 800 {
		t.Errorf("%d lines, want 800", n)
	}
}
