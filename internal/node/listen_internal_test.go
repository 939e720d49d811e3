package node

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// A connection that does not show its protocol in time is closed, even if it has sent half of a
// preface. Time is virtual.
func TestSilentConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	for _, said := range []string{"", "PRI * HT", "G"} {
		synctest.Test(t, func(t *testing.T) {
			l := bufconn.Listen(1 << 10)
			s := newSplitter(l, nil, nil)
			conn, err := l.DialContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, said); err != nil {
				t.Fatal(err)
			}

			begin := time.Now()
			if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(begin) > sniffTime {
				t.Errorf("after %q: %v, %s later", said, err, time.Since(begin))
			}
			synctest.Wait() // the connection is closed first, and then no longer counted
			if len(s.room) > 1 {
				t.Errorf("%d connections are counted", len(s.room))
			}
			_ = conn.Close()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
