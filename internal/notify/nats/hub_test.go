package nats_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/notify/nats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startServer starts a NATS server, on a free port if port is 0.
func startServer(t *testing.T, port int, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true}
	if port == 0 {
		o.Port = server.RANDOM_PORT
	}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { stopServer(s) })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not start")
	}
	return s
}

func stopServer(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// ear is a hub that records the hints that it receives.
type ear struct {
	*nats.Hub
	t *testing.T

	mu    sync.Mutex
	heard map[notify.Hint]int
	log   bytes.Buffer
}

func openHub(t *testing.T, url, cluster string) *ear {
	t.Helper()
	e := &ear{t: t, heard: map[notify.Hint]int{}}
	hub, err := nats.Open(nats.Config{URL: url, Cluster: cluster, Log: slog.New(slog.NewTextHandler(e, nil))})
	if err != nil {
		t.Fatal(err)
	}
	e.Hub = hub
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
	hub.Subscribe(func(h notify.Hint) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.heard[h]++
	})
	return e
}

// Write keeps a line of the log.
func (e *ear) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.log.Write(b)
}

func (e *ear) logs(text string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Contains(e.log.String(), text)
}

func (e *ear) has(h notify.Hint) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard[h] > 0
}

// eventually repeats act until fact is true, because NATS drops a message that has no subscriber
// yet.
func eventually(t *testing.T, what string, act func(), fact func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !fact(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
		if act != nil {
			act()
		}
	}
}

var mail = notify.Hint{Kind: notify.Mail, Shard: 7}

// A hint reaches the other nodes of its store, and no others.
func TestHintsReachOtherNodes(t *testing.T) {
	t.Parallel()
	s := startServer(t, 0, nil)
	a, b, stranger := openHub(t, s.ClientURL(), "one"), openHub(t, s.ClientURL(), "one"), openHub(t, s.ClientURL(), "two")
	eventually(t, "b hears a", func() { a.Publish(mail) }, func() bool { return b.has(mail) })
	own := notify.Hint{Kind: notify.Mail, Shard: 8}
	eventually(t, "a hears b", func() { b.Publish(own) }, func() bool { return a.has(own) })
	if a.has(mail) || b.has(own) || stranger.has(mail) || stranger.has(own) {
		t.Error("a hint has reached its sender or the node of another store")
	}
}

// A hub without a server neither fails nor blocks. When the server is back, the hub connects again
// and tells its node to look at the store.
func TestServerGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	s := startServer(t, 0, nil)
	port := s.Addr().(*net.TCPAddr).Port
	a, b := openHub(t, s.ClientURL(), "one"), openHub(t, s.ClientURL(), "one")
	eventually(t, "b hears a", func() { a.Publish(mail) }, func() bool { return b.has(mail) })

	stopServer(s)
	eventually(t, "a line in the log", nil, func() bool { return a.logs("NATS cannot be reached") })
	for i := range 20_000 { // more than may wait
		a.Publish(notify.Hint{Kind: notify.Mail, Shard: model.ShardID(i % 4096)})
		a.Changed([]model.Change{completed("acme", strconv.Itoa(i))})
	}

	s = startServer(t, port, nil)
	eventually(t, "b looks around", nil, func() bool { return b.has(notify.Hint{Kind: notify.Membership}) })
	again := notify.Hint{Kind: notify.Mail, Shard: 9}
	eventually(t, "b hears a again", func() { a.Publish(again) }, func() bool { return b.has(again) })
	eventually(t, "a line in the log", nil, func() bool { return a.logs("NATS works again") })

	got := subscribe(t, s.ClientURL(), "perdure.changes.acme.>")
	eventually(t, "changes arrive again", func() { a.Changed([]model.Change{completed("acme", "x")}) }, func() bool {
		return got.has("perdure.changes.acme.execution.completed")
	})
}

// A subscriber learns how many changes were dropped because too many waited at the same time.
func TestMissedChanges(t *testing.T) {
	t.Parallel()
	s := startServer(t, 0, nil)
	got := subscribe(t, s.ClientURL(), "perdure.changes.acme.>")
	a := openHub(t, s.ClientURL(), "one")
	eventually(t, "a is connected", func() { a.Changed([]model.Change{completed("acme", "x")}) }, func() bool {
		return got.has("perdure.changes.acme.execution.completed")
	})

	many := make([]model.Change, 40_000)
	for i := range many {
		many[i] = completed("acme", "y")
	}
	eventually(t, "the subscriber learns what it has missed", func() { a.Changed(many) }, func() bool {
		return strings.HasPrefix(got.of("perdure.changes.acme.missed"), `{"tenant":"acme","missed":`)
	})
}

// A server that accepts connections and says nothing does not block a node.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	a := openHub(t, "nats://"+l.Addr().String(), "one")
	for i := range 20_000 {
		a.Publish(notify.Hint{Kind: notify.Mail, Shard: model.ShardID(i % 4096)})
		a.Changed([]model.Change{completed("acme", strconv.Itoa(i))})
	}
}

// Garbage on the subject of hints changes nothing.
func TestGarbage(t *testing.T) {
	t.Parallel()
	s := startServer(t, 0, nil)
	a, b := openHub(t, s.ClientURL(), "one"), openHub(t, s.ClientURL(), "one")
	c, err := natsgo.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	for _, garbage := range []string{"", "\x00\xff", "m99999 c!! x", strings.Repeat("m1 ", 100_000), strings.Repeat("v", 200_000)} {
		if err := c.Publish("perdure.hints.one", []byte(garbage)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b hears a", func() { a.Publish(mail) }, func() bool { return b.has(mail) })
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.heard) != 1 {
		t.Errorf("b has heard %v", b.heard)
	}
}

func completed(tenant, key string) model.Change {
	return model.Change{
		Class: model.ClassExecution, Kind: model.ChangeCompleted, Status: model.Completed, Seq: 3, At: model.Time(1_800_000_000_000_000),
		Address: model.Address{Tenant: tenant, Type: "order", Key: key},
	}
}

// inbox keeps the last message of each subject.
type inbox struct {
	mu   sync.Mutex
	last map[string]string
	all  int
}

func (i *inbox) has(subject string) bool { return i.of(subject) != "" }

func (i *inbox) of(subject string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last[subject]
}

func subscribe(t *testing.T, url, subject string, options ...natsgo.Option) *inbox {
	t.Helper()
	c, err := natsgo.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	in := &inbox{last: map[string]string{}}
	if _, err := c.Subscribe(subject, func(m *natsgo.Msg) {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.last[m.Subject] = string(m.Data)
		in.all++
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	return in
}

// A subscriber of one tenant gets the changes of that tenant, and NATS refuses it the changes of
// other tenants.
func TestChangesOfATenant(t *testing.T) {
	t.Parallel()
	s := startServer(t, 0, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "node", Password: "canary"},
			{Username: "acme", Password: "a", Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{"perdure.changes.acme.>"}}}},
		}
	})
	address := s.Addr().String()
	acme := subscribe(t, "nats://acme:a@"+address, "perdure.changes.acme.>", natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}))
	all := subscribe(t, "nats://node:canary@"+address, "perdure.changes.>")

	a := openHub(t, "nats://node:canary@"+address, "one")
	done := "perdure.changes.acme.execution.completed"
	eventually(t, "the change arrives", func() {
		a.Changed([]model.Change{completed("acme", "42"), completed("other", "42"), completed("a.b", "42")})
	}, func() bool {
		return acme.has(done) && all.has("perdure.changes.other.execution.completed") && all.has("perdure.changes.a=b.execution.completed")
	})

	var got map[string]any
	if err := json.Unmarshal([]byte(acme.of(done)), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"tenant": "acme", "class": "execution", "kind": "completed", "workflow": "order", "key": "42", "status": "completed", "seq": 3.0, "at": "2027-01-15T08:00:00Z"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the change is %v, want %v", got, want)
	}
	acme.mu.Lock()
	defer acme.mu.Unlock()
	if len(acme.last) != 1 {
		t.Errorf("the subscriber of acme has got %v", acme.last)
	}
}

// A node with a wrong password logs that once, without the password, and keeps trying.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	s := startServer(t, 0, func(o *server.Options) { o.Users = []*server.User{{Username: "node", Password: "right"}} })
	a := openHub(t, "nats://node:canary@"+s.Addr().String(), "one")
	eventually(t, "a line in the log", nil, func() bool { return a.logs("Authorization Violation") })
	if a.logs("canary") {
		t.Error("the log has the password")
	}
	if err := s.ReloadOptions(&server.Options{Host: "127.0.0.1", Port: s.Addr().(*net.TCPAddr).Port, NoLog: true, NoSigs: true, Users: []*server.User{{Username: "node", Password: "canary"}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node connects", nil, func() bool { return a.logs("NATS works again") })
}

func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]nats.Config{
		"the URL of NATS cannot be read": {URL: "http://u:canary@host"},
		"the prefix of NATS subjects":    {URL: "nats://127.0.0.1:1", Prefix: "a b"},
		"read the credentials for NATS":  {URL: "nats://127.0.0.1:1", Credentials: "/none"},
	} {
		_, err := nats.Open(c)
		if err == nil || !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
}
