package cli

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A server refuses calls of a caller that makes too many calls.
func TestServeLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := writeFile(t, dir, "key", serveKey)
	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", key, "--call-rate", "1")
	var mu sync.Mutex
	codes := map[int]int{}
	var calls sync.WaitGroup
	for range 60 { // the loop takes less than a minute, so the server must refuse some of the calls
		calls.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+"/v1/me", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+serveKey)
			got, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, got.Body)
			_ = got.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			codes[got.StatusCode]++
		})
	}
	calls.Wait()
	if codes[http.StatusOK] == 0 || codes[http.StatusTooManyRequests] == 0 || len(codes) != 2 {
		t.Errorf("the answers are %v", codes)
	}

	s.end()
}

// A server closes connections beyond its limit before it reads from them, and takes new ones when
// others are closed.
func TestServeConnections(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", writeFile(t, dir, "key", serveKey), "--max-connections", "2")
	dial := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	// answers reports whether the server answers on a connection, or closes it.
	answers := func(c net.Conn) bool {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n") // fails on a closed connection
		one := make([]byte, 4)
		n, _ := io.ReadFull(c, one)
		return n == len(one) && string(one) == "HTTP"
	}

	first, second := dial(), dial()
	if !answers(first) || !answers(second) {
		t.Error("a connection within the limit is closed")
	}
	if answers(dial()) {
		t.Error("a connection beyond the limit is served")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for !answers(dial()) { // until the server has noticed that the first connection is closed
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(s.log.String(), "as many connections as it may have") {
		t.Errorf("the log does not say so:\n%s", s.log)
	}
	s.end()
}
