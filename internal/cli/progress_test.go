package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
)

func TestBar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		done, total int64
		want        string
	}{
		{0, 0, ""},
		{5, 0, ""},
		{0, 4, "[........................]   0% "},
		{1, 4, "[######..................]  25% "},
		{4, 4, "[########################] 100% "},
		{9, 4, "[########################] 100% "},
		{-1, 4, "[........................]   0% "},
		{1, 1 << 62, "[........................]   0% "},
	} {
		if got := bar(c.done, c.total); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.done, c.total, got, c.want)
		}
	}
}

// A terminal shows one bar that is drawn again and does not wrap; a pipe gets whole lines, at most
// one per second.
func TestProgress(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	var out bytes.Buffer
	p := (&options{Streams: Streams{Err: &out, ErrWidth: 40}}).newProgress()
	p.show(1, 4, long)
	p.tell(1, 4, long) // too soon after the last bar
	p.told = time.Now().Add(-time.Hour)
	p.tell(2, 4, "half")
	p.clear()
	p.clear() // nothing to remove
	drawn := strings.Split(out.String(), "\r")
	if len(drawn) != 4 || !strings.HasPrefix(drawn[1], "[######......") || !strings.Contains(drawn[2], "50% half") || drawn[3] != ansi.EraseLineRight || strings.Contains(out.String(), "\n") {
		t.Errorf("a terminal gets %q", out.String())
	}
	for _, line := range drawn {
		if w := ansi.StringWidth(line); w >= 40 {
			t.Errorf("%q has %d columns", line, w)
		}
	}

	out.Reset()
	p = (&options{Streams: Streams{Err: &out}}).newProgress()
	p.tell(1, 4, "too soon")
	p.told = time.Now().Add(-time.Hour)
	p.tell(2, 4, "half")
	p.tell(3, 4, "too soon")
	p.clear()
	if out.String() != "half.\n" {
		t.Errorf("a pipe gets %q", out.String())
	}
}

// While bulk work runs, a terminal shows a bar. The bar is gone at the end. The result on standard
// output is the same as in a pipe.
func TestBulkOnATerminal(t *testing.T) {
	t.Parallel()
	many := filepath.Join(t.TempDir(), "many.jsonl")
	if err := os.WriteFile(many, []byte("{\"key\":\"1\"}\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, code := range map[string]int{
		"workflow start order --many " + many: 2, "workflow export --query status='closed' --out DIR": 0, "dlq purge --all --yes -o json": 0,
	} {
		run := func(width int) (out, shown string) {
			var o, e bytes.Buffer
			words := strings.Fields(strings.Replace(args, "DIR", t.TempDir(), 1))
			opt := &options{Streams: Streams{In: strings.NewReader(""), Out: &o, Err: &e, ErrWidth: width}, connect: connectTo(&prepared{}), every: time.Nanosecond}
			if got := opt.run(t.Context(), append([]string{"--store", "postgres://prepared"}, words...)); got != code {
				t.Errorf("%s: exit %d, want %d: %s", args, got, code, &e)
			}
			return o.String(), e.String()
		}

		pipe, _ := run(0)
		terminal, shown := run(80)
		if pipe != terminal {
			t.Errorf("%s prints %q on a terminal, and %q in a pipe", args, terminal, pipe)
		}
		// The terminal erases the rest of the line after each bar, and the whole line at the end.
		last := strings.LastIndex(shown, "%")
		if last < 0 || !strings.Contains(shown[last:], ansi.EraseLineRight+"\r"+ansi.EraseLineRight) {
			t.Errorf("%s shows no bar, or leaves it: %q", args, shown)
		}
	}
}
