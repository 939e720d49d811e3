package remote

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A call that a server has served for longer than the patience survives a restart of the server:
// the outage starts when the connection breaks, not when the call began. A call that no server
// answers ends after the patience.
func TestOutageStartsWhenTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	gone := status.Error(codes.Unavailable, "the connection is closed")

	for name, c := range map[string]struct {
		served, away time.Duration
		answered     bool
	}{
		"a short restart":                  {served: 10 * time.Minute, away: 50 * time.Second, answered: true},
		"an outage of more than a minute":  {served: 10 * time.Minute, away: 2 * time.Minute},
		"no server from the beginning":     {away: 2 * time.Minute},
		"a server that comes in a while":   {away: 30 * time.Second, answered: true},
		"a call that is dropped at once":   {served: time.Second, away: 30 * time.Second, answered: true},
		"a call that is dropped, then two": {served: time.Second, away: 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &Backend{patience: time.Minute}
				var broke time.Time
				calls := 0
				err := b.attempt(t.Context(), false, func(_ context.Context, opts ...grpc.CallOption) error {
					if calls++; calls == 1 {
						if c.served > 0 {
							reach(opts)
							time.Sleep(c.served)
						}
						broke = time.Now()
						return gone
					}
					if time.Since(broke) < c.away {
						return gone
					}
					return nil
				})

				waited := time.Since(broke)
				if c.answered != (err == nil) || c.answered && waited > c.away+2*maxPause || !c.answered && (waited < time.Minute-c.served-time.Second || waited > time.Minute+2*maxPause) {
					t.Errorf("the call ended %s after the connection broke: %v", waited, err)
				}
			})
		})
	}
}

// reach notes in the options of a call that the call got a stream to a server.
func reach(opts []grpc.CallOption) {
	for _, o := range opts {
		if p, ok := o.(grpc.PeerCallOption); ok {
			p.PeerAddr.Addr = &net.TCPAddr{}
		}
	}
}
