package spelling_test

import (
	"testing"

	"github.com/perdure/perdure/internal/spelling"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"listen", "listen", 0}, {"lisen", "listen", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 2},
	} {
		if got := spelling.Distance(c.a, c.b); got != c.want {
			t.Errorf("the distance of %q and %q is %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	if got := spelling.Nearest("lisen", []string{"store", "listen", "log"}); got != "listen" {
		t.Errorf("the nearest word is %q", got)
	}
}
