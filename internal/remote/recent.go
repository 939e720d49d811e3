package remote

// maxRecent bounds how many of its reports a role remembers.
const maxRecent = 10_000

// recent remembers the values that were added last, by key. The zero value is empty.
type recent[K comparable, V any] struct {
	values map[K]V
	order  []K // oldest first
}

func (r *recent[K, V]) add(k K, v V) {
	if r.values == nil {
		r.values = map[K]V{}
	}
	if _, known := r.values[k]; !known {
		r.order = append(r.order, k)
	}
	r.values[k] = v
	if len(r.order) > maxRecent {
		delete(r.values, r.order[0])
		r.order = r.order[1:]
	}
}

// take returns everything, and forgets it.
func (r *recent[K, V]) take() map[K]V {
	all := r.values
	*r = recent[K, V]{}
	return all
}
