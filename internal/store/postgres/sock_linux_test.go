package postgres

import (
	"net"
	"testing"
	"time"
)

// After a slow write, a goroutine of the driver still reads from the idle connection. The health
// check must not wait for that goroutine.
func TestHealthyWhileSomebodyReads(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})

	go func() {
		defer close(read)
		_, _ = client.Read(make([]byte, 1)) // ends with the connection
	}()

	look := func() bool {
		t.Helper()
		answer := make(chan bool, 1)
		go func() { answer <- healthy(client) }()
		select {
		case ok := <-answer:
			return ok
		case <-time.After(2 * time.Minute):
			t.Fatal("a look at the connection waits for its reader")
			return false
		}
	}
	for range 100 {
		if !look() {
			t.Fatal("an idle connection is not healthy")
		}
	}

	_ = server.Close()
	<-read
	if look() {
		t.Error("a closed connection is healthy")
	}
}
