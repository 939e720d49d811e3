package e2e_test

import (
	"fmt"
	"testing"
	"time"
)

func TestZZ(t *testing.T) {
	for i := range 300 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "memory")
			s.cfg.IdleAfter = time.Nanosecond
			attempts(t, s)
		})
	}
}
