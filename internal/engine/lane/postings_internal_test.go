package lane

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPostingsAreAMap compares postings with a map that gets the same changes.
func TestPostingsAreAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p postings
		model := map[string]posting{}
		id := rapid.SampledFrom([]string{"a", "b", "c"})
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			k := id.Draw(t, "id")
			if rapid.Bool().Draw(t, "set") {
				v := posting{claim: rapid.Int64().Draw(t, "claim")}
				p.set(k, v)
				model[k] = v
			} else {
				p.remove(k)
				delete(model, k)
			}

			if want := slices.Sorted(maps.Keys(model)); p.len() != len(model) || !slices.Equal(p.ids(nil), want) {
				t.Fatalf("got %d: %q, want %q", p.len(), p.ids(nil), want)
			}

			for _, k := range []string{"a", "b", "c"} {
				got, ok := p.get(k)
				if want, there := model[k]; ok != there || ok && got != want {
					t.Fatalf("got %+v, %t for %s, want %+v, %t", got, ok, k, want, there)
				}
			}
		}
	})
}
