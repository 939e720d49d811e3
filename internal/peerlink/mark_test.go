package peerlink

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/internal/peerlink/lan"
)

// A request says which mark its sender had returned before it sent the request. A request that was
// on its way when its sender gave the connection up has no later mark.
func TestMarks(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		var late lan.Late
		l.Bend(late.Wrap)
		a, b := open(t, l, 1, nil), open(t, l, 2, nil)
		var since []uint64
		b.answer = func(r *Request) {
			b.mu.Lock()
			since = append(since, r.Since)
			b.mu.Unlock()
			r.Reply(0, func(dst []byte) []byte { return append(dst, "ok"...) })
		}
		call := func() {
			if _, _, err := a.net.Call(t.Context(), b.id, []byte("x")); err != nil {
				t.Error(err)
			}
		}

		b.net.Mark(3)
		meet(a, b) // a connection starts with the current mark
		call()
		b.net.Mark(4)
		synctest.Wait()
		call()
		b.net.Mark(2) // an outdated mark changes nothing
		synctest.Wait()
		call()

		late.Hold()
		lost := make(chan error)
		go func() {
			_, _, err := a.net.Call(t.Context(), b.id, []byte("x"))
			lost <- err
		}()
		synctest.Wait()
		a.net.SetPeers(nil) // a gives the connection up
		if err := <-lost; err == nil {
			t.Error("the request has an answer")
		}
		b.net.Mark(5)
		synctest.Wait()
		late.Release()
		synctest.Wait()
		if want := []uint64{3, 4, 4, 4}; !slices.Equal(since, want) {
			t.Errorf("the requests had marks %v, want %v", since, want)
		}
	})
}

// A node of an older build returns no marks. Its requests have the mark with which the connection
// started.
func TestMarksOfAnOlderBuild(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		a, b := open(t, l, 1, nil), open(t, l, 2, nil)
		var since uint64
		b.answer = func(r *Request) {
			since = r.Since
			r.Reply(0, func(dst []byte) []byte { return dst })
		}
		meet(a, b)
		c := b.net.to(a.id)
		c.mu.Lock()
		c.marks = false
		c.mu.Unlock()
		b.net.Mark(1)
		synctest.Wait()
		if _, _, err := a.net.Call(t.Context(), b.id, []byte("x")); err != nil || since != 0 {
			t.Errorf("the request had mark %d, %v", since, err)
		}
	})
}
