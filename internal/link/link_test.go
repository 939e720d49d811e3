package link_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/link"
)

// Whatever breaks, the other side takes every item once and in order.
func TestEverythingArrivesOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var out link.Out[int]
		var in link.In
		var got []int
		type sent struct {
			number uint64
			items  []int
		}
		var wire []sent // sent, not received
		added := 0

		for range rapid.IntRange(1, 200).Draw(t, "moves") {
			switch rapid.IntRange(0, 5).Draw(t, "move") {
			case 0, 1:
				out.Add(added, rapid.IntRange(1, 50).Draw(t, "size"))
				added++
			case 2:
				if n, items, ok := out.Next(100); ok {
					wire = append(wire, sent{n, items})
				}
			case 3:
				if len(wire) > 0 {
					got = take(t, &in, got, wire[0].number, wire[0].items)
					wire = wire[1:]
				}
			case 4:
				if err := out.Acknowledge(in.Taken()); err != nil {
					t.Fatal(err)
				}
			case 5: // the stream breaks and loses the frames on it
				wire = nil
				if err := out.Resume(in.Taken()); err != nil {
					t.Fatal(err)
				}
			}
		}

		wire = nil
		if err := out.Resume(in.Taken()); err != nil {
			t.Fatal(err)
		}
		for n, items, ok := out.Next(100); ok; n, items, ok = out.Next(100) {
			got = take(t, &in, got, n, items)
		}
		want := make([]int, added)
		for i := range want {
			want[i] = i
		}
		if !slices.Equal(got, want) {
			t.Fatalf("took %v, want 0 to %d", got, added-1)
		}
		if err := out.Acknowledge(in.Taken()); err != nil {
			t.Fatal(err)
		}
		if n, bytes := out.Backlog(); n != 0 || bytes != 0 {
			t.Fatalf("keeps %d items and %d bytes after everything is acknowledged", n, bytes)
		}
	})
}

// take takes a frame and returns everything that was taken.
//
//arch:parameters a helper of one test
func take(t *rapid.T, in *link.In, got []int, number uint64, items []int) []int {
	fresh, err := in.Take(number)
	if err != nil {
		t.Fatal(err)
	}
	if fresh {
		got = append(got, items...)
	}
	return got
}

// The other side may be hostile. Out refuses the number of a frame that it has never sent. On a new
// stream it also refuses a number that is lower than one that the other side has acknowledged. In
// refuses a frame if the frame before it is missing.
func TestImpossibleNumbersAreRefused(t *testing.T) {
	t.Parallel()
	var out link.Out[int]
	out.Add(1, 1)
	out.Next(1)
	out.Add(2, 1)
	out.Next(1)
	if err := out.Acknowledge(1); err != nil {
		t.Fatal(err)
	}

	var in link.In
	_, gap := in.Take(2)
	for name, err := range map[string]error{"ahead": out.Acknowledge(3), "resume ahead": out.Resume(3), "resume behind": out.Resume(0), "gap": gap} {
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want an Invalid error", name, err)
		}
	}
}
