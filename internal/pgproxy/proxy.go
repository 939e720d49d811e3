package pgproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// Direction is a way through the proxy.
type Direction int

const (
	// ToServer is the direction of requests.
	ToServer Direction = iota
	// ToClient is the direction of answers.
	ToClient
)

// Proxy forwards connections to a PostgreSQL server. Its methods may be called from any goroutine.
type Proxy struct {
	listener net.Listener
	// ctx ends with the proxy. All its goroutines use it.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // the accept loop and all connections

	// mu is never held during I/O. A goroutine may lock it while it holds conn.mu, but must not
	// lock conn.mu while it holds mu.
	mu       sync.Mutex
	target   string
	accepted int
	conns    map[*conn]struct{}
	armed    []*Trigger // in the order of their injection
	slow     time.Duration
	rate     int // bytes per second from clients; 0 for no limit
	// busy is the time at which all bytes so far have arrived, at that rate
	busy  time.Time
	gates [2]chan struct{} // by direction; a closed channel lets traffic through
}

// New starts a proxy in front of the server at the address target ("127.0.0.1:5432"). It closes the
// proxy at the end of the test.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := Listen(target)
	if err != nil {
		t.Fatalf("pgproxy: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("pgproxy: close: %v", err)
		}
	})
	return p
}

// Listen starts a proxy in front of the server at the address target, for programs that are not
// tests.
func Listen(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, conns: map[*conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for direction := range p.gates {
		p.gates[direction] = closedGate()
	}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address on which clients reach the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL returns the connection URL of a server, with the address of the proxy instead of the server.
func (p *Proxy) URL(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		// The driver reports the mistake when the test connects.
		return server
	}
	u.Host = p.Addr()
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String()
}

// Inject arms a rule. When several rules could strike the same request, the one injected first
// strikes; the others wait for the next request that they match.
func (p *Proxy) Inject(rule Rule) *Trigger {
	if rule.Fault < Reset || rule.Fault > Delay {
		panic(fmt.Sprintf("pgproxy: rule with fault %d", rule.Fault))
	}
	if rule.Match == nil {
		rule.Match = Commits
	}
	t := &Trigger{rule: rule, proxy: p, left: max(rule.Nth, 1), hit: make(chan struct{}), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, t)
	return t
}

// DelayCommits delays every commit from now on by d, as a slow disk does: the statements of a batch
// run and hold their locks, and the commit follows d later ([HoldCommit]). DelayCommits(0) ends the
// delay.
func (p *Proxy) DelayCommits(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = d
}

// Throttle limits the bytes per second from clients, over all connections, like a slow network
// path. A client that gives up in the middle of a request leaves no trace on the server.
// Throttle(0) removes the limit.
func (p *Proxy) Throttle(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate, p.busy = bytesPerSecond, time.Time{}
}

// pace waits as long as n bytes take on a throttled path.
func (p *Proxy) pace(ctx context.Context, n int) error {
	p.mu.Lock()
	if p.rate == 0 {
		p.mu.Unlock()
		return nil
	}

	now := time.Now()
	if p.busy.Before(now) {
		p.busy = now
	}
	p.busy = p.busy.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	wait := p.busy.Sub(now)
	p.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Blackhole lets nothing through in the given directions, or in both if none is given, on existing
// and new connections, until [Proxy.Heal]. As with TCP, nothing is lost: bytes wait, and so do the
// ends of connections. A server behind a black hole does not learn that its client is gone.
func (p *Proxy) Blackhole(directions ...Direction) {
	if len(directions) == 0 {
		directions = []Direction{ToServer, ToClient}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, direction := range directions {
		select {
		case <-p.gates[direction]:
			p.gates[direction] = make(chan struct{})
		default: // blocked already
		}
	}
}

// Heal ends all black holes and delivers the waiting bytes.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for direction, gate := range p.gates {
		select {
		case <-gate:
		default:
			close(gate)
			p.gates[direction] = closedGate()
		}
	}
}

// Retarget sends new connections to another server. Existing connections stay. See [Proxy.CutAll].
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// CutAll resets both sides of all connections and waits until they have ended. The proxy accepts
// new connections during that time.
func (p *Proxy) CutAll() {
	conns := p.list()
	for _, c := range conns {
		c.cancel()
	}
	for _, c := range conns {
		<-c.ended
	}
}

// Conns returns the number of connections.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Close resets all connections, stops listening, and waits for the end of all goroutines. It does
// not change rules that have not struck.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	p.cancel()
	p.running.Wait()
	return err
}

// list returns the current connections.
func (p *Proxy) list() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.conns))
}

// accept serves connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // the listener is closed: a loopback address has no temporary errors
		}
		p.mu.Lock()
		p.accepted++
		c := newConn(p, p.accepted, client.(*net.TCPConn))
		p.conns[c] = struct{}{}
		p.mu.Unlock()

		p.running.Go(func() {
			c.serve()
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
			close(c.ended)
		})
	}
}

// catch returns the rule that strikes a request, if any, and how long its commit is delayed.
func (p *Proxy) catch(r Request) (*Trigger, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var struck *Trigger
	for _, t := range p.armed {
		if !t.rule.Match(r) {
			continue
		}
		if t.left > 1 {
			t.left--
		} else if struck == nil {
			struck = t
		}
	}

	if struck != nil {
		p.disarm(struck)
		struck.request = r
	}

	if !r.Commits() {
		return struck, 0
	}
	return struck, p.slow
}

// unreachable reports whether a cancel key belongs to a session from which a fault has cut its
// client off.
func (p *Proxy) unreachable(key []byte) bool {
	return slices.ContainsFunc(p.list(), func(c *conn) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.struck && bytes.Equal(c.key, key)
	})
}

// disarm removes a trigger from the armed rules. It returns false when the trigger is not armed.
// The caller holds p.mu.
func (p *Proxy) disarm(t *Trigger) bool {
	i := slices.Index(p.armed, t)
	if i < 0 {
		return false
	}
	p.armed = slices.Delete(p.armed, i, i+1)
	return true
}

// pass waits until a direction is open to traffic.
func (p *Proxy) pass(ctx context.Context, direction Direction) error {
	for {
		p.mu.Lock()
		gate := p.gates[direction]
		p.mu.Unlock()
		select {
		case <-gate:
			return nil
		default:
		}
		select {
		case <-gate: // Heal was called; check again, because the direction may be blocked again
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// closedGate returns a gate that lets traffic through.
func closedGate() chan struct{} {
	gate := make(chan struct{})
	close(gate)
	return gate
}
