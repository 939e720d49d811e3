package history_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
)

// Cut refuses a place at which the source had entities locked. The error says where the lock is and
// which positions are possible, even if several locks overlap.
func TestCutInsideOfALock(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name, history string
		r             history.Request
		want          string
	}{
		{
			"right behind the grant", "+a {l gl gl +b }l +c",
			history.Request{Mode: history.Fork, After: 4, Placed: true},
			"position 4 is inside the lock of account/1, account/2, from event 2 to event 6, and a run that begins there would not hold it: positions 1 and 6 are possible",
		},
		{
			"right before the end", "+a {l gl gl +b }l +c",
			history.Request{Mode: history.Reset, After: 5, Placed: true},
			"positions 1 and 6 are possible",
		},
		{
			"of a run that is in one", "+a {l gl gl +b",
			history.Request{Mode: history.Fork},
			"from event 2 to the end of the history, and a run that begins there would not hold it: position 1 is possible",
		},
		{
			"before a step that failed in one", "{l gl gl -b }l",
			history.Request{Mode: history.Retry},
			"position 3 is inside the lock of account/1, account/2, from event 1 to event 5, and a run that begins there would not hold it: positions 0 and 5 are possible",
		},
		{
			"where locks overlap", "+a {l gl gl {m gm gm +b }l +c }m",
			history.Request{Mode: history.Fork, After: 8, Placed: true},
			"positions 1 and 11 are possible",
		},
		{
			"where locks overlap, the later one", "+a {l gl gl {m gm gm +b }l +c }m",
			history.Request{Mode: history.Fork, After: 9, Placed: true},
			"from event 5 to event 11, and a run that begins there would not hold it: positions 1 and 11 are possible",
		},
		{
			"where the later one never ends", "+a {l gl gl {m gm gm +b }l +c",
			history.Request{Mode: history.Fork, After: 8, Placed: true},
			"to event 9, and a run that begins there would not hold it: position 1 is possible",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.r.Child = children
			_, err := history.Cut(record(c.history), &c.r)
			if err == nil || fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
