package model_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/model"
)

func TestCutMarksWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"short", 10, "short"},
		{"", 0, ""},
		{strings.Repeat("a", 100), 30, strings.Repeat("a", 11) + "… (89 bytes cut)"},
		{strings.Repeat("é", 50), 30, strings.Repeat("é", 5) + "… (90 bytes cut)"},
	} {
		got := model.Cut(c.text, c.most)
		if got != c.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
		if len(got) > c.most || !utf8.ValidString(got) || model.Cut(got, c.most) != got {
			t.Errorf("Cut(%q, %d) = %q: too long, not valid, or cut twice", c.text, c.most, got)
		}
	}
}

func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	f := (&model.Failure{Kind: long, Type: long, Message: long, Stack: long, Permanent: true}).Bounded()
	if f.Size() > 64<<10 || !f.Permanent || !strings.HasSuffix(f.Message, "bytes cut)") || f.Bounded() != f {
		t.Errorf("bounded to %d bytes: %.50q", f.Size(), f.Message)
	}
	if b := f.Brief(); b.Size() > 4<<10 || b.Stack != "" {
		t.Errorf("brief has %d bytes", b.Size())
	}
	small := &model.Failure{Message: "no"}
	if small.Bounded() != small {
		t.Error("a small failure was copied")
	}
	waits := make([]model.Reason, 10_000)
	for i := range waits {
		waits[i] = model.Reason{Code: model.WaitRetry, Detail: long}
	}
	if got := model.BoundedReasons(waits); len(got) != model.MaxReasons || len(got[0].Detail) > model.MaxReasonText {
		t.Errorf("%d reasons of %d bytes", len(got), len(got[0].Detail))
	}
	if few := waits[:0]; &model.BoundedReasons(append(few, model.Reason{Name: "a"}))[0] != &waits[0] {
		t.Error("small reasons were copied")
	}
}

// A worker can be any program, so it may report any bytes as the code of a reason. Bounded replaces
// what a text column of a store could not keep.
func TestCodesOfReasonsCanBeStored(t *testing.T) {
	t.Parallel()
	bad := model.Reason{Code: "a\x00b\xff"}
	if got := model.BoundedReasons([]model.Reason{{Code: model.WaitTimer}, bad}); got[0].Code != model.WaitTimer || got[1].Code != "a\ufffdb\ufffd" {
		t.Errorf("the codes are %q and %q", got[0].Code, got[1].Code)
	}
	if got := bad.Bounded().Bounded().Code; got != "a\ufffdb\ufffd" {
		t.Errorf("a reason that is bounded twice has code %q", got)
	}
}
