package replay

import (
	"iter"
	"slices"
	"strings"
)

// asks are the requests of the code, by identity. Most code makes few, which need no map.
type asks struct {
	few  [4]*ask         // the first of them, then nil; empty once there is a map
	many map[string]*ask // nil until there are more than few can hold
}

// get returns the ask with an identity; nil if there is none.
func (as *asks) get(id []byte) *ask {
	for _, a := range as.few {
		if a != nil && a.id == string(id) {
			return a
		}
	}
	return as.many[string(id)]
}

// put adds an ask. No other ask has its identity.
func (as *asks) put(a *ask) {
	if as.many == nil {
		if free := slices.Index(as.few[:], nil); free >= 0 {
			as.few[free] = a
			return
		}
		as.many = make(map[string]*ask, 4*len(as.few))
		for _, f := range as.few {
			as.many[f.id] = f
		}
		as.few = [len(as.few)]*ask{}
	}
	as.many[a.id] = a
}

// all returns the asks in no particular order.
func (as *asks) all() iter.Seq[*ask] {
	return func(yield func(*ask) bool) {
		for _, a := range as.few {
			if a != nil && !yield(a) {
				return
			}
		}
		for _, a := range as.many {
			if !yield(a) {
				return
			}
		}
	}
}

// sorted returns the asks in the order of their identities.
func (as *asks) sorted() []*ask {
	return slices.SortedFunc(as.all(), func(a, b *ask) int { return strings.Compare(a.id, b.id) })
}
