package notify_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/perdure/perdure/internal/notify"
)

func TestLocal(t *testing.T) {
	t.Parallel()
	var hub notify.Local
	hub.Publish(notify.Hint{Kind: notify.Membership}) // nobody listens
	var first, second []notify.Hint
	stop := hub.Subscribe(func(h notify.Hint) { first = append(first, h) })
	hub.Subscribe(func(h notify.Hint) {
		second = append(second, h)
		if h.Kind == notify.Membership {
			hub.Publish(notify.Hint{Kind: notify.Mail, Shard: 7}) // a subscriber may publish
		}
	})
	hub.Publish(notify.Hint{Kind: notify.Membership})
	stop()
	stop()
	hub.Publish(notify.Hint{Kind: notify.Mail, Shard: 8})
	if len(first) != 2 || len(second) != 3 || !slices.Contains(first, notify.Hint{Kind: notify.Mail, Shard: 7}) {
		t.Errorf("heard %v and %v", first, second)
	}
}

func TestLocalFromManySides(t *testing.T) {
	t.Parallel()
	var hub notify.Local
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				stop := hub.Subscribe(func(notify.Hint) {})
				hub.Publish(notify.Hint{Kind: notify.Mail})
				stop()
			}
		})
	}
	wg.Wait()
}

func TestNobody(t *testing.T) {
	t.Parallel()
	var hub notify.Hub = notify.Nobody{}
	stop := hub.Subscribe(func(notify.Hint) { t.Error("somebody") })
	hub.Publish(notify.Hint{Kind: notify.Membership})
	stop()
}
