package replay

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestDelay(t *testing.T) {
	for _, c := range []struct {
		p    Policy
		want string
	}{
		{Policy{}, "1s 2s 4s 8s 16s 32s 1m0s 1m0s"},
		{Policy{Initial: time.Minute, Coefficient: 3, Max: time.Hour}, "1m0s 3m0s 9m0s 27m0s 1h0m0s 1h0m0s 1h0m0s 1h0m0s"},
		{Policy{Initial: 5 * time.Minute}, "5m0s 5m0s 5m0s 5m0s 5m0s 5m0s 5m0s 5m0s"},
		{Policy{Initial: time.Second, Coefficient: 1}, "1s 1s 1s 1s 1s 1s 1s 1s"},
		{Policy{Coefficient: math.NaN()}, "1s 2s 4s 8s 16s 32s 1m0s 1m0s"},
	} {
		var got []string
		for n := 1; n <= 8; n++ {
			got = append(got, c.p.delay(n, 0.5).String())
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v: %s, want %s", c.p, s, c.want)
		}
	}
}

func TestDelayNeverOverflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Initial: time.Duration(rapid.Int64().Draw(t, "initial")), Max: time.Duration(rapid.Int64().Draw(t, "max")),
			Coefficient: rapid.Float64().Draw(t, "coefficient"), Jitter: rapid.Float64().Draw(t, "jitter"),
		}
		n := rapid.Int().Draw(t, "n")
		if d := p.delay(n, rapid.Float64Range(0, 1).Draw(t, "random")); d < 0 || d > farFuture {
			t.Fatalf("%s", d)
		}
	})
}

func TestJitterStaysAround(t *testing.T) {
	p := Policy{Initial: time.Second, Jitter: 0.1}
	if lo, hi := p.delay(1, 0), p.delay(1, 1); lo != 900*time.Millisecond || hi != 1100*time.Millisecond {
		t.Errorf("%s … %s", lo, hi)
	}
}

func TestAgain(t *testing.T) {
	boom := errors.New("boom")
	never := Policy{If: func(err error) bool { return !errors.Is(err, boom) }}
	for _, c := range []struct {
		p    Policy
		err  error
		n    int
		want string
	}{
		{Policy{}, boom, 1_000_000, "1m0s true"},
		{Policy{MaxAttempts: 3}, boom, 2, "2s true"},
		{Policy{MaxAttempts: 3}, boom, 3, "0s false"},
		{Policy{}, fmt.Errorf("wrapped: %w", Permanent(boom)), 1, "0s false"},
		{Policy{}, fmt.Errorf("wrapped: %w", RetryAfter(boom, time.Hour)), 1, "1h0m0s true"},
		{Policy{MaxAttempts: 1}, RetryAfter(boom, time.Hour), 1, "0s false"},
		{Policy{}, RetryAfter(boom, -time.Hour), 1, "0s true"},
		{never, boom, 1, "0s false"},
		{never, errors.New("other"), 1, "1s true"},
	} {
		d, again := c.p.nextAttempt(c.err, c.n)
		if got := fmt.Sprint(d, again); got != c.want {
			t.Errorf("%v after %d: %s, want %s", c.err, c.n, got, c.want)
		}
	}

	if Permanent(nil) != nil || RetryAfter(nil, 1) != nil {
		t.Error("no error became one")
	}
}

// TestIdentitiesAreUnambiguous draws the parts of identities. It checks that equal texts have equal
// parts, and that every text is bounded and can be parsed.
func TestIdentitiesAreUnambiguous(t *testing.T) {
	type parts struct {
		path, name, key string
		keyed           bool
		n               int
	}

	text := rapid.OneOf(rapid.StringN(1, 12, 40).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) }), rapid.SampledFrom([]string{"a", "a#1", "1:a", "a/k1:b", "s1:a", "b", "#", "/", "é", strings.Repeat("x", 200)}))
	gen := rapid.Custom(func(t *rapid.T) parts {
		return parts{
			rapid.SampledFrom([]string{"", "1", "1.2", "12", "1.2.3"}).Draw(t, "path"), text.Draw(t, "name"),
			rapid.OneOf(text, rapid.Just(""), rapid.Just("\xff\x00"), rapid.Just(strings.Repeat("k", 5000))).Draw(t, "key"),
			rapid.Bool().Draw(t, "keyed"), rapid.IntRange(0, 12).Draw(t, "n"),
		}
	})

	id := func(p parts) string { return StepID(p.path, p.name, p.key, p.keyed, nil, p.n) }
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if !a.keyed {
			a.key = ""
		}
		if !b.keyed {
			b.key = ""
		}
		if (id(a) == id(b)) != (a == b) {
			t.Fatalf("%+v and %+v are %q and %q", a, b, id(a), id(b))
		}

		if s := id(a); len(s) > 600 || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			t.Fatalf("%q cannot be stored", s)
		}
		path, _, name, key, n, ok := ParseID(id(a))
		if !ok || path != a.path || name != a.name || n != a.n || a.keyed && key != "" && key != a.key {
			t.Fatalf("%+v came back as %q %q %q %d %v", a, path, name, key, n, ok)
		}
	})
}

func TestPathsAreBounded(t *testing.T) {
	seen := map[string]bool{}
	path := ""
	for range 200 {
		path = ChildPath(path, 1)
		if len(path) > maxPath || seen[path] {
			t.Fatalf("path %q", path)
		}
		seen[path] = true
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("1.2/s6:charge/k3:abc#4")
	f.Add("/t")
	f.Add("/s99999999999999999999:x")
	f.Fuzz(func(t *testing.T, s string) { parseID(s) })
}
