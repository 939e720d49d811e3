package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// quarantined are the addresses that the lane isolates, see quarantine.
type quarantined struct{ entries []*entry }

func (q *quarantined) len() int { return len(q.entries) }

func (q *quarantined) add(e *entry) { q.entries = append(q.entries, e) }

func (q *quarantined) remove(e *entry) {
	q.entries = slices.DeleteFunc(q.entries, func(o *entry) bool { return o == e })
}

// take returns the addresses whose quarantine is over, and forgets the addresses of shards that
// have moved.
func (q *quarantined) take(now model.Time) (due []*entry) {
	q.entries = slices.DeleteFunc(q.entries, func(e *entry) bool {
		if !e.shard.gone && now >= e.quarantine.until {
			due = append(due, e)
		}
		return e.shard.gone || now >= e.quarantine.until
	})
	return due
}

// wake returns when the first quarantine is over. It returns zero if no address is quarantined.
func (q *quarantined) wake() (first model.Time) {
	for _, e := range q.entries {
		if first == 0 || e.quarantine.until < first {
			first = e.quarantine.until
		}
	}
	return first
}
