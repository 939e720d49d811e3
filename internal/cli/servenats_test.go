package cli

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A server publishes changes on NATS. It also serves while NATS is away.
func TestServeWithNATS(t *testing.T) {
	t.Parallel()
	carrier, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	carrier.Start()
	t.Cleanup(func() { carrier.Shutdown(); carrier.WaitForShutdown() })
	conn, err := nats.Connect("nats://"+carrier.Addr().String(), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	changes, err := conn.SubscribeSync("shop.changes.default.execution.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}

	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--nats", "nats://"+carrier.Addr().String(), "--nats-prefix", "shop",
		"--admin-key-file", writeFile(t, t.TempDir(), "key", serveKey))
	start := func(key string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address+"/v1/executions", strings.NewReader(`{"workflow":"order","key":"`+key+`","input":1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+serveKey)
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusCreated {
			t.Fatalf("the start has the status %d", res.StatusCode)
		}
	}

	// The server connects in the background, so the first changes may be missed.
	for key := "1"; ; key += "1" {
		start(key)
		m, err := changes.NextMsg(2 * time.Second)
		if err == nil {
			if m.Subject != "shop.changes.default.execution.started" || !strings.Contains(string(m.Data), `"workflow":"order","key":"1`) {
				t.Errorf("%s: %s", m.Subject, m.Data)
			}
			break
		}
		if len(key) > 60 {
			t.Fatal("no change arrives")
		}
	}

	carrier.Shutdown()
	carrier.WaitForShutdown()
	start("away")
}
