package engine

import (
	"fmt"
	"testing"
	"time"
)

// If a lane sets many rows aside, it logs some of the rows each minute. It also logs how many rows
// it has left out.
func TestLinesOfRowsSetAsideAreBounded(t *testing.T) {
	t.Parallel()
	var a asideLog
	now := time.Now()
	lines := 0
	for i := range 1000 {
		line, about := a.next(now.Add(time.Duration(i) * time.Millisecond))
		if line {
			lines++
		}
		if said := len(about) > 0; said != (i == asideLines-1) {
			t.Errorf("row %d says %v", i, about)
		}
	}
	if lines != asideLines {
		t.Errorf("%d lines for 1,000 rows", lines)
	}

	line, about := a.next(now.Add(2 * time.Minute))
	if want := fmt.Sprint([]any{"unlogged", 1000 - asideLines}); !line || fmt.Sprint(about) != want {
		t.Errorf("a minute later: %t, %v, want %s", line, about, want)
	}
	if line, about := a.next(now.Add(4 * time.Minute)); !line || len(about) > 0 {
		t.Errorf("two minutes later: %t, %v", line, about)
	}
}
