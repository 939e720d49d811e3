package model_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

func TestFingerprintsGroupMessages(t *testing.T) {
	t.Parallel()
	groups := [][]string{
		{"timeout after 31 ms talking to 10.0.0.7", "timeout after 28 ms talking to 10.0.0.9", "  timeout after 1 ms  talking to\t10.0.0.99 "},
		{"timeout after 31ms", "timeout after 1m30.5s", "timeout after 12.75µs"},
		{"dial tcp 10.0.0.7:5432: connect: connection refused", "dial tcp 192.168.7.12:80: connect: connection refused"},
		{"dial tcp [::1]:5432: connect: connection refused", "dial tcp [fe80::aa:bb]:1: connect: connection refused"},
		{"lookup db-7.internal.example.com: no such host", "lookup db-12.internal.example.com: no such host"},
		{`no customer "Ann"`, `no customer "Bob \"the boss\" Miller"`, `no customer "4711"`},
		{"can't open 'a.txt'", "can't open 'it's here.txt'"},
		{"column `a` does not exist", "column `b_c` does not exist"},
		{"key «a» is taken", "key «b» is taken"},
		{"order 0193f2c1-aaaa-7bbb-8ccc-dddddddddddd is closed", "order f47ac10b-58cc-4372-a567-0e02b2c3d479 is closed"},
		{"commit deadbeef is not there", "commit 0a1b2c3d is not there", "commit FFFFFFFFFFFFFFFF is not there"},
		{"run_06g5v0zkv0s00000000000000c is closed", "run_06g5v0zkv0s00000000000000d is closed"},
		{"mail to ann@example.com bounced", "mail to bob.miller+x@mail.example.org bounced"},
		{"GET https://example.com/a/b?c=d: unreachable", "GET https://example.org/: unreachable"},
		{"at 2026-01-02T10:00:00Z nothing", "at 2025-12-31T23:59:59.123Z nothing"},
		{"rows [1 2 3] are locked", "rows [7] are locked", "rows [1, 2, 3, 4] are locked", "rows [0xdead, 0xbeef] are locked"},
		{"id=42 kind=a", "id=43 kind=a"},
		{"id=42 kind=b", "id=1 kind=b"},
		{"disk is full", "disk is full"},
		{"disk is 93% full", "disk is 100% full", "disk is 3 full"},
		{"balance is -5.00 EUR", "balance is +7,50 EUR"},
		{"/var/run/42/x: denied", "/var/run/7/x: denied"},
		{"/var/lib/42/x: denied"},
		{"café fermé", "café fermé"},
		{"\xff\xfe broken 1", "\xff\xfe broken 2"},
		{`unclosed "quote 1`, `unclosed "quote 2`},
		{""},
		{"std::vector is empty"},
		{"a: b: c"},
		{"a: b: d"},
	}

	seen := map[string]string{}
	for _, g := range groups {
		first := ""
		for i, message := range g {
			print := (&model.Failure{Kind: "timeout", Type: "*net.OpError", Message: message, Stack: message}).Fingerprint()
			if len(print) != 16 {
				t.Errorf("%q has the fingerprint %q", message, print)
			}
			if i == 0 {
				first = print
			}
			if print != first {
				t.Errorf("%q and %q are two groups", g[0], message)
			}
		}

		if other, ok := seen[first]; ok {
			t.Errorf("%q and %q are one group", other, g[0])
		}
		seen[first] = g[0]
	}
}

func TestFingerprintsTellKindsAndTypesApart(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range []*model.Failure{
		{}, {Kind: "a"}, {Type: "a"}, {Message: "a"}, {Kind: "a", Type: "b"}, {Kind: "ab"}, {Type: "ab"}, {Kind: "b", Type: "a"},
	} {
		seen[f.Fingerprint()] = true
	}

	if len(seen) != 8 {
		t.Errorf("%d fingerprints of 8 failures", len(seen))
	}
	a, b := &model.Failure{Message: "x", Stack: "main.go:1", Permanent: true}, &model.Failure{Message: "x"}
	if a.Fingerprint() != b.Fingerprint() {
		t.Error("the stack counts")
	}
	if (*model.Failure)(nil).Fingerprint() != (&model.Failure{}).Fingerprint() {
		t.Error("no failure is not an empty one")
	}

	// Operators search for stored fingerprints. If a build computed other ones, similar failures
	// would no longer be in one group.
	if got := (&model.Failure{Kind: "timeout", Type: "*net.OpError", Message: "timeout after 31 ms talking to 10.0.0.7"}).Fingerprint(); got != fingerprintGolden {
		t.Errorf("fingerprint = %s, want %s", got, fingerprintGolden)
	}
}

const fingerprintGolden = "4687430c57e24563"

// Every message has a fingerprint. Two messages that differ only in their numbers have the same
// fingerprint.
func TestFingerprintOfAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		message := genText.Draw(t, "message")
		print := (&model.Failure{Message: message}).Fingerprint()
		if again := (&model.Failure{Message: " " + message + " "}).Fingerprint(); len(print) != 16 || again != print {
			t.Fatalf("%q: %s, with spaces around it %s", message, print, again)
		}
		n, m := rapid.Uint32().Draw(t, "one"), rapid.Uint32().Draw(t, "other")
		words := rapid.SliceOfN(rapid.StringMatching(`[g-z]{1,9}`), 1, 8).Draw(t, "words")
		text := strings.Join(words, " %d ") + " %d"

		with := func(n uint32) string {
			args := make([]any, len(words))
			for i := range args {
				args[i] = n
			}
			return (&model.Failure{Message: fmt.Sprintf(text, args...)}).Fingerprint()
		}
		if with(n) != with(m) {
			t.Fatalf("%q differs with %d and %d", text, n, m)
		}
	})

	huge := strings.Repeat("a 1 ", 1<<20)
	if (&model.Failure{Message: huge}).Fingerprint() != (&model.Failure{Message: huge + "b"}).Fingerprint() {
		t.Error("the end of a huge message counts")
	}
}

func TestDeadTaskKeepsTheFirstAndTheLastAttempts(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 99, 100, 101, 150, 1000} {
		var d model.DeadTask
		for i := range n {
			d.Add(model.FailedAttempt{Attempt: i + 1, At: model.Time(i), Failure: model.Failure{Message: fmt.Sprint(i)}})
		}
		if len(d.Failed)+d.LeftOut != n || len(d.Failed) != min(n, model.MaxFailedAttempts) {
			t.Fatalf("%d attempts: %d kept, %d left out", n, len(d.Failed), d.LeftOut)
		}

		for i, a := range d.Failed {
			want := i + 1
			if i >= model.MaxFailedAttempts/2 {
				want += d.LeftOut
			}
			if a.Attempt != want {
				t.Fatalf("%d attempts: number %d is kept at %d, want %d", n, a.Attempt, i, want)
			}
		}
	}
}

func TestDeadTaskCutsLongTexts(t *testing.T) {
	t.Parallel()
	for _, s := range []string{strings.Repeat("x", model.MaxFailedText), strings.Repeat("é", 1<<20), "a" + strings.Repeat("😀", 1<<20), strings.Repeat("\x80", 1<<20), "short"} {
		var d model.DeadTask
		d.Add(model.FailedAttempt{Failure: model.Failure{Message: s, Stack: s}})
		f := d.Failed[0].Failure
		if len(f.Message) > model.MaxFailedText || len(f.Message) < min(len(s), model.MaxFailedText-8) || f.Stack != f.Message {
			t.Errorf("%d bytes are %d", len(s), len(f.Message))
		}
		if utf8.ValidString(s) != utf8.ValidString(f.Message) {
			t.Errorf("a character of %.10q was cut", s)
		}
		if len(s) <= model.MaxFailedText && f.Message != s {
			t.Errorf("%.10q was cut", s)
		}
	}
}

func TestDeadTaskRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := genDead.Draw(t, "dead")
		back, err := model.DecodeDeadTask(model.AppendDeadTask(nil, &d))
		if err != nil {
			t.Fatal(err)
		}
		if diff := asStored(back, d); diff != "" {
			t.Fatalf("changed by the codec (-stored +read):\n%s", diff)
		}

		p := genPayload.Draw(t, "payload")
		value, err := model.DecodePayload(model.AppendPayload(nil, &p))
		if err != nil {
			t.Fatal(err)
		}
		if diff := asStored(value, p); diff != "" {
			t.Fatalf("changed by the codec (-stored +read):\n%s", diff)
		}
	})
}
