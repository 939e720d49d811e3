package engine

import (
	"errors"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
)

// A caller that gives up keeps the answers that have arrived, also those without a run: the answer
// to the purge of a dead task has none.
func TestAnswersBeforeTheCallerGaveUp(t *testing.T) {
	t.Parallel()
	why := errors.New("gave up")
	for name, end := range map[string]func(b *bundle) []Sent{
		"abandon": func(b *bundle) []Sent { return b.abandon(why) },
		"fail each": func(b *bundle) []Sent {
			b.failCall(0, why)
			b.failCall(1, why)
			return b.abandon(errors.New("another error"))
		},
	} {
		b := &bundle{sent: make([]Sent, 2), answered: make([]bool, 2), done: make(chan struct{})}
		b.left.Store(3)
		part{b, 0}.finish(&lane.Answer{})
		sent := end(b)
		if sent[0].Err != nil || !errors.Is(sent[1].Err, why) {
			t.Errorf("%s: the errors are %v and %v, want none and %v", name, sent[0].Err, sent[1].Err, why)
		}
		part{b, 1}.finish(&lane.Answer{}) // a late answer changes nothing
		if !errors.Is(sent[1].Err, why) {
			t.Errorf("%s: a late answer changed the error to %v", name, sent[1].Err)
		}
	}
}
