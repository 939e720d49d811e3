package memory

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// content returns all elements of an ordered set, in order.
func content(o *ordered[int]) (out []int) {
	for p := o.first(); ; p.next() {
		v, ok := p.at()
		if !ok {
			return out
		}
		out = append(out, v)
	}
}

func TestOrderedIsASortedSet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := &ordered[int]{compare: cmp.Compare[int]}
		var model []int
		// Insert enough elements for several chunks, in order, backwards and at random.
		n := rapid.IntRange(0, 600).Draw(t, "inserts")

		step := rapid.SampledFrom([]int{1, -1, 7919}).Draw(t, "step")
		for i := range n {
			v := (i*step%1000 + 1000) % 1000
			at, found := slices.BinarySearch(model, v)
			if o.insert(v) == found {
				t.Fatalf("insert of %d, found %v", v, found)
			}
			if !found {
				model = slices.Insert(model, at, v)
			}
		}

		for range rapid.IntRange(0, 400).Draw(t, "removals") {
			v := rapid.IntRange(0, 1000).Draw(t, "value")
			at, found := slices.BinarySearch(model, v)
			if got, ok := o.get(v); ok != found || (ok && got != v) {
				t.Fatalf("get of %d: %d, %v, want %v", v, got, ok, found)
			}
			if got, ok := o.remove(v); ok != found || (ok && got != v) {
				t.Fatalf("remove of %d: %d, %v, want %v", v, got, ok, found)
			}
			if found {
				model = slices.Delete(model, at, at+1)
			}
		}

		if got := content(o); !slices.Equal(got, model) {
			t.Fatalf("got %v, want %v", got, model)
		}

		for _, chunk := range o.chunks {
			if len(chunk) == 0 || len(chunk) > chunkSize {
				t.Fatalf("a chunk of %d", len(chunk))
			}
		}

		v := rapid.IntRange(-1, 1001).Draw(t, "mark")
		p := o.after(v)
		got, ok := p.at()
		i := slices.IndexFunc(model, func(m int) bool { return m > v })
		if ok != (i >= 0) || (ok && got != model[i]) {
			t.Fatalf("after %d: %d, %v", v, got, ok)
		}
	})
}

func TestMergeVisitsInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var places []place[int]
		var want []int
		for range rapid.IntRange(0, 12).Draw(t, "sets") {
			o := &ordered[int]{compare: cmp.Compare[int]}
			for _, v := range rapid.SliceOfN(rapid.IntRange(0, 50), 0, 20).Draw(t, "values") {
				if o.insert(v) {
					want = append(want, v)
				}
			}
			places = append(places, o.first())
		}

		slices.Sort(want)
		most := rapid.IntRange(0, 250).Draw(t, "most")
		var got []int

		merge(places, cmp.Compare[int], func(v int) bool {
			if len(got) == most {
				return false
			}
			got = append(got, v)
			return true
		})

		if !slices.Equal(got, want[:min(most, len(want))]) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
