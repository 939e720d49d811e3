package restapi_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/restapi"
)

// audience is a server with tenants, and clients that follow their changes as server-sent events.
type audience struct {
	*world
	t       *testing.T
	backend api.Backend
	tenants []string
	pause   time.Duration // between two executions of a tenant
	begun   time.Time     // when the first execution was started
}

func newAudience(t *testing.T, tenants int) *audience {
	t.Helper()
	a := &audience{t: t}
	a.world = newWorld(t, func(c *restapi.Config) { a.backend = c.Backend })
	for i := range tenants {
		name := fmt.Sprint("tenant-", i)
		if _, err := a.admin.CreateTenant(a.ctx, api.TenantChange{Name: name}); err != nil {
			t.Fatal(err)
		}
		a.tenants = append(a.tenants, name)
	}
	return a
}

// publish starts executions of a tenant, one after the other. Their keys begin with their numbers.
func (a *audience) publish(tenant string, from, to int, suffix string) {
	for n, due := from, time.Now(); n < to; n, due = n+1, due.Add(a.pause) {
		time.Sleep(time.Until(due))
		key := strconv.Itoa(n) + suffix
		if _, err := a.backend.Start(a.ctx, api.StartRequest{Address: model.Address{Tenant: tenant, Type: "order", Key: key}}); err != nil {
			a.t.Errorf("start %d of %s: %v", n, tenant, err)
			return
		}
	}
}

// heard records what a listener has received about the executions of its tenant.
type heard struct {
	next int // the number that should come next
	gaps int
	lost int // numbers that are missing although no page has said so
	told bool
}

// page reads a page of changes.
func (h *heard) page(t *testing.T, data string) {
	var p struct {
		Changes []struct{ Kind, Key string }
		Gap     bool
	}
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		t.Errorf("%v: %.200s", err, data)
		return
	}
	if p.Gap {
		h.gaps++
		h.told = true
	}

	for _, c := range p.Changes {
		if c.Kind != string(model.ChangeStarted) {
			continue
		}
		number, _, _ := strings.Cut(c.Key, "-")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Errorf("the key %.40q", c.Key)
		}
		if n != h.next && !h.told {
			h.lost++
		}
		h.next, h.told = n+1, false
	}
}

// attend lets listeners of each tenant follow the changes while executions are started, and returns
// what they have received.
func (a *audience) attend(listeners, executions int) []heard {
	a.t.Helper()
	all := make([]heard, listeners*len(a.tenants))
	var attending, starting sync.WaitGroup
	begun := make(chan struct{}, len(all))
	for i := range all {
		tenant := a.tenants[i%len(a.tenants)]
		s := a.follow(a.t, "?class=execution", "Perdure-Tenant", tenant)
		attending.Go(func() {
			for first := true; all[i].next < executions; first = false {
				_, _, data, ok := s.next()
				if !ok {
					a.t.Errorf("the stream of listener %d ended at %d", i, all[i].next)
					break
				}
				all[i].page(a.t, data)
				if first {
					begun <- struct{}{}
				}
			}
			s.close()
		})
	}

	for range all { // wait for the first page of each listener, after which it misses nothing
		<-begun
	}
	a.begun = time.Now()
	for _, tenant := range a.tenants {
		starting.Go(func() { a.publish(tenant, 0, executions, "") })
	}
	starting.Wait()
	attending.Wait()
	return all
}

// wantAll checks that the listeners have received everything in order.
func wantAll(t *testing.T, all []heard, executions int) {
	t.Helper()
	for i, h := range all {
		if h.next != executions || h.gaps != 0 || h.lost != 0 {
			t.Errorf("listener %d: %d of %d executions, %d gaps, %d lost", i, h.next, executions, h.gaps, h.lost)
		}
	}
}

// Many listeners receive all changes that fit into the buffer, in order, even if they are slow.
func TestManyListeners(t *testing.T) {
	t.Parallel()
	a := newAudience(t, 2)
	wantAll(t, a.attend(25, 500), 500)
}

// If a listener does not read while more changes happen than the buffer keeps, it learns that it
// has missed changes. It never loses changes without notice.
func TestListenerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	a := newAudience(t, 1)
	s := a.follow(t, "?class=execution", "Perdure-Tenant", a.tenants[0])
	_, last, _, ok := s.next()
	if !ok {
		t.Fatal("there is no first page")
	}
	// The keys are long, so that the buffer is full when it reaches its limit in bytes: it keeps
	// about 5,500 changes. The buffers of the connection keep some thousands more.
	const executions = 16_000
	suffix := "-" + strings.Repeat("x", 480)
	a.publish(a.tenants[0], 0, executions, suffix)

	h := heard{}
	for h.next <= executions {
		_, id, data, ok := s.next()
		if !ok { // the server has given the stream up
			s.close()
			s = a.follow(t, "?class=execution", "Perdure-Tenant", a.tenants[0], "Last-Event-ID", last)
			continue
		}
		last = id
		before := h.gaps
		if h.page(t, data); h.gaps > before { // it continues with new changes
			a.publish(a.tenants[0], executions, executions+1, suffix)
		}
		if h.next == executions && h.gaps == 0 {
			t.Fatal("the buffer has kept everything")
		}
	}
	if h.gaps != 1 || h.lost != 0 {
		t.Errorf("%d gaps, %d lost", h.gaps, h.lost)
	}
}
