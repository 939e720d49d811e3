package model_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// A policy without a maximum keeps a first pause of more than a minute. It does not matter which
// program has made the policy.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r    model.Retry
		want string
	}{
		{model.Retry{}, "1s 2s 4s 8s 16s 32s 1m0s 1m0s"},
		{model.Retry{Initial: 5 * time.Minute}, "5m0s 5m0s 5m0s 5m0s 5m0s 5m0s 5m0s 5m0s"},
		{model.NewRetry(0, 5*time.Minute, 0, 0, 0), "5m0s 5m0s 5m0s 5m0s 5m0s 5m0s 5m0s 5m0s"},
		{model.Retry{Initial: time.Minute, Max: time.Hour, Coefficient: 3000}, "1m0s 3m0s 9m0s 27m0s 1h0m0s 1h0m0s 1h0m0s 1h0m0s"},
		{model.Retry{Initial: 5 * time.Minute, Max: time.Second}, "1s 1s 1s 1s 1s 1s 1s 1s"},
	} {
		var got []string
		for n := 1; n <= 8; n++ {
			got = append(got, c.r.Pause(n, 0).String())
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v: %s, want %s", c.r, s, c.want)
		}
	}
}
