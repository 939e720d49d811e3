package nats

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Bounds of the changes that wait to be sent.
const (
	mostChanges     = 16_384
	mostChangeBytes = 8 << 20
	mostTenants     = 10_000 // for how many tenants dropped changes are counted
)

// change is a change as subscribers get it. It has the fields of the changes of the REST API, and
// the tenant.
type change struct {
	Tenant   string     `json:"tenant"`
	Class    string     `json:"class"`
	Kind     string     `json:"kind"`
	Workflow string     `json:"workflow,omitempty"`
	Key      string     `json:"key,omitempty"`
	Run      string     `json:"run,omitempty"`
	Task     string     `json:"task,omitempty"`
	Name     string     `json:"name,omitempty"`
	Of       string     `json:"of,omitempty"`
	Queue    string     `json:"queue,omitempty"`
	Status   string     `json:"status,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Locked   bool       `json:"locked,omitempty"`
	Seq      int64      `json:"seq,omitempty"`
	At       *time.Time `json:"at,omitempty"`
}

func changeOf(c *model.Change) change {
	out := change{
		Tenant: c.Address.Tenant, Class: string(c.Class), Kind: string(c.Kind), Workflow: c.Address.Type, Key: c.Address.Key,
		Task: c.Task, Name: c.Name, Of: c.Of, Queue: c.Queue, Reason: string(c.Reason), Locked: c.Locked, Seq: c.Seq,
	}
	if !c.Run.IsZero() {
		out.Run = c.Run.String()
	}
	if c.Status != 0 {
		out.Status = c.Status.String()
	}
	if !c.At.IsZero() {
		at := c.At.Std().UTC()
		out.At = &at
	}
	return out
}

// subjectOf returns the subject of messages about a tenant. It replaces dots in the name of the
// tenant, because dots separate the words of a subject.
func (h *Hub) subjectOf(tenant string, words ...string) string {
	all := append([]string{h.cfg.Prefix, "changes", strings.ReplaceAll(tenant, ".", "=")}, words...)
	return strings.Join(all, ".")
}

// sendChange sends a change and reports whether NATS has taken it.
func (h *Hub) sendChange(c *model.Change) bool {
	body, err := json.Marshal(changeOf(c))
	return err == nil && h.conn.Publish(h.subjectOf(c.Address.Tenant, string(c.Class), string(c.Kind)), body) == nil
}

// sendMissed tells subscribers how many changes of a tenant were dropped.
func (h *Hub) sendMissed(tenant string, n int) bool {
	body, err := json.Marshal(struct {
		Tenant string `json:"tenant"`
		Missed int    `json:"missed"`
	}{tenant, n})
	return err == nil && h.conn.Publish(h.subjectOf(tenant, "missed"), body) == nil
}

// backlog has the changes that wait to be sent.
type backlog struct {
	mu      sync.Mutex
	changes []model.Change
	bytes   int
	missed  map[string]int // dropped changes by tenant
	wake    chan struct{}
}

func newBacklog() *backlog {
	return &backlog{missed: map[string]int{}, wake: make(chan struct{}, 1)}
}

// add adds changes. It counts the ones for which there is no room.
func (b *backlog) add(changes []model.Change) {
	b.mu.Lock()
	for i := range changes {
		c := &changes[i]
		if len(b.changes) >= mostChanges || b.bytes+c.Size() > mostChangeBytes {
			b.count(c.Address.Tenant, 1)
			continue
		}
		b.changes = append(b.changes, *c)
		b.bytes += c.Size()
	}
	b.mu.Unlock()

	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// miss counts changes of a tenant that could not be sent. The hub tries to report the count with
// the next change.
func (b *backlog) miss(tenant string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(tenant, n)
}

// count counts dropped changes. The caller must hold the lock.
func (b *backlog) count(tenant string, n int) {
	if _, known := b.missed[tenant]; known || len(b.missed) < mostTenants {
		b.missed[tenant] += n
	}
}

// take returns the changes and the counts, and removes them.
func (b *backlog) take() (changes []model.Change, missed map[string]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changes, missed = b.changes, b.missed
	b.changes, b.bytes, b.missed = nil, 0, map[string]int{}
	return changes, missed
}
