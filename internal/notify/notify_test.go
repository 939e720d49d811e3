package notify_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
)

func TestLocal(t *testing.T) {
	t.Parallel()
	var hub notify.Local // the zero value works
	hub.Publish(notify.Hint{Kind: notify.Mail})
	var a, b []notify.Hint
	leaveA := hub.Subscribe(func(h notify.Hint) { a = append(a, h) })
	leaveB := hub.Subscribe(func(h notify.Hint) { b = append(b, h) })
	one := notify.Hint{Kind: notify.Mail, Shard: 7}
	two := notify.Hint{Kind: notify.Closed, Node: model.NodeID{1}}
	three := notify.Hint{Kind: notify.Membership}
	hub.Publish(one)
	hub.Publish(two)
	leaveA()
	leaveA() // a second call is fine
	hub.Publish(three)
	leaveB()
	hub.Publish(one)
	if len(a) != 2 || a[0] != one || a[1] != two {
		t.Errorf("the first subscriber got %+v", a)
	}
	if len(b) != 3 || b[2] != three {
		t.Errorf("the second subscriber got %+v", b)
	}
}

// A subscriber may publish, subscribe and leave from within its call, because Local holds no lock
// during the call.
func TestLocalCallsBack(t *testing.T) {
	t.Parallel()
	var hub notify.Local
	var got []notify.Kind
	var leave func()

	leave = hub.Subscribe(func(h notify.Hint) {
		got = append(got, h.Kind)
		if h.Kind == notify.Mail {
			leave()
			hub.Subscribe(func(h notify.Hint) { got = append(got, h.Kind) })
			hub.Publish(notify.Hint{Kind: notify.Closed})
		}
	})

	hub.Publish(notify.Hint{Kind: notify.Mail})
	if len(got) != 2 || got[0] != notify.Mail || got[1] != notify.Closed {
		t.Errorf("got %v, want the mail and, for the new subscriber, the close", got)
	}
}

func TestLocalFromManyGoroutines(t *testing.T) {
	t.Parallel()
	var hub notify.Local
	var n atomic.Int64
	hub.Subscribe(func(notify.Hint) { n.Add(1) })

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				leave := hub.Subscribe(func(notify.Hint) {})
				hub.Publish(notify.Hint{Kind: notify.Mail})
				leave()
			}
		})
	}

	wg.Wait()
	if n.Load() != 800 {
		t.Errorf("%d hints arrived, want 800", n.Load())
	}
}

func TestNobody(t *testing.T) {
	t.Parallel()
	var hub notify.Hub = notify.NoHub{}
	leave := hub.Subscribe(func(notify.Hint) { t.Error("a subscriber was called") })
	hub.Publish(notify.Hint{Kind: notify.Mail})
	leave()
	leave()
}
