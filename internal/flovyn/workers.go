package flovyn

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of what the door remembers about workers.
const (
	// maxWorkers is how many workers the door remembers.
	maxWorkers = 100_000
	// maxWorkerBytes is how many bytes all of them together may take.
	maxWorkerBytes = 64 << 20
	// maxKinds is how many workflows and how many tasks a worker may register.
	maxKinds = 1_000
	// maxAbout is the longest description that the door keeps, in bytes.
	maxAbout = 500
)

// workers remembers what workers have registered, and when each worker last made a call. Some
// workers call themselves by their name, and others by the id that they got at their registration.
type workers struct {
	mu    sync.Mutex
	all   map[workerKey]*workerInfo
	bytes int
}

type workerKey struct{ tenant, id string }

// workerInfo is what the door knows about a worker.
type workerInfo struct {
	id, name, version, kind, host, process string
	workflows, tasks                       []capability
	heard                                  time.Time
	beats                                  bool // it sends heartbeats
	registered                             time.Time
}

// capability is a workflow or a task that a worker has registered.
type capability struct {
	kind, name, about, version string
	timeout                    time.Duration
}

func (k workerKey) size() int { return len(k.tenant) + len(k.id) + 100 }

func (i *workerInfo) size() int {
	n := len(i.id) + len(i.name) + len(i.version) + len(i.kind) + len(i.host) + len(i.process) + 200
	for _, list := range [][]capability{i.workflows, i.tasks} {
		for _, c := range list {
			n += len(c.kind) + len(c.name) + len(c.about) + len(c.version) + 80
		}
	}
	return n
}

func newWorkers() *workers { return &workers{all: map[workerKey]*workerInfo{}} }

// see notes that a worker has made a call.
func (w *workers) see(tenant, worker string, now time.Time) {
	if worker == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := workerKey{tenant, worker}
	info := w.all[k]
	if info == nil {
		info = &workerInfo{}
		w.put(k, info)
	}
	info.heard = now
}

// put adds or replaces what is known about a worker. The caller holds the lock.
func (w *workers) put(k workerKey, info *workerInfo) {
	w.forget(k)
	w.makeRoom()
	w.all[k] = info
	w.bytes += k.size() + info.size()
}

// forget removes a worker. The caller holds the lock.
func (w *workers) forget(k workerKey) {
	if info := w.all[k]; info != nil {
		w.bytes -= k.size() + info.size()
		delete(w.all, k)
	}
}

// makeRoom forgets the workers that have been silent the longest, if a bound is reached. If that is
// not enough, it forgets all workers. The caller holds the lock.
func (w *workers) makeRoom() {
	if len(w.all) < maxWorkers && w.bytes < maxWorkerBytes {
		return
	}
	for age := 24 * time.Hour; (len(w.all) >= maxWorkers/2 || w.bytes >= maxWorkerBytes/2) && age > 0; age = age/2 - time.Second {
		for k, info := range w.all {
			if time.Since(info.heard) > age {
				w.forget(k)
			}
		}
	}
	if len(w.all) >= maxWorkers || w.bytes >= maxWorkerBytes {
		clear(w.all)
		w.bytes = 0
	}
}

// silence is how long ago a worker that sends heartbeats gave a sign of life. It is 0 for a worker
// that has never sent a heartbeat, because such a worker may be busy.
func (w *workers) silence(tenant, worker string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	info := w.all[workerKey{tenant, worker}]
	if info == nil || !info.beats {
		return 0
	}
	return now.Sub(info.heard)
}

// beat notes a heartbeat of a worker. The id and the name of a registered worker share one record.
func (w *workers) beat(tenant, id string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := workerKey{tenant, id}
	info := w.all[k]
	if info == nil {
		info = &workerInfo{id: id}
		w.put(k, info)
	}
	info.heard, info.beats = now, true
}

// register notes a worker, under its id and under its name.
func (w *workers) register(tenant string, info *workerInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.all[workerKey{tenant, info.id}]; old != nil {
		info.beats = old.beats
	}
	w.put(workerKey{tenant, info.id}, info)
	w.put(workerKey{tenant, info.name}, info)
}

// timeout returns how long a kind of task may take according to its worker. It returns 0 if the
// worker has named no time.
func (w *workers) timeout(tenant, worker, kind string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	info := w.all[workerKey{tenant, worker}]
	if info == nil {
		return 0
	}
	for _, c := range info.tasks {
		if c.kind == kind {
			return c.timeout
		}
	}
	return 0
}

// list returns the registered workers of a tenant.
func (w *workers) list(tenant string) []workerInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []workerInfo
	for k, info := range w.all {
		if k.tenant == tenant && k.id == info.id && info.name != "" {
			all = append(all, *info)
		}
	}
	return all
}

// lifecycle serves WorkerLifecycle.
type lifecycle struct {
	pb.UnimplementedWorkerLifecycleServer
	d *Door
}

// RegisterWorker gives a worker its id. Workers of a tenant with the same name get the same id, and
// the last registration replaces what the door knows about them.
func (s *lifecycle) RegisterWorker(ctx context.Context, m *pb.WorkerRegistrationRequest) (*pb.WorkerRegistrationResponse, error) {
	tenant, err := s.d.tenant(ctx, m.GetOrgId())
	if err != nil {
		return nil, err
	}
	if err := checkText("the name of the worker", m.GetWorkerName(), maxKey); err != nil {
		return nil, err
	}
	if n := max(len(m.GetWorkflows()), len(m.GetTasks())); n > maxKinds {
		return nil, fault.New(fault.Invalid, "the worker registers %d workflows or tasks, may register %d", n, maxKinds)
	}

	now := time.Now()
	short := func(text string) string { return model.Cut(text, maxText) }
	info := &workerInfo{
		id: workerID(tenant, m.GetWorkerName()), name: m.GetWorkerName(), version: short(m.GetWorkerVersion()), kind: short(m.GetWorkerType()),
		host: short(m.GetHostName()), process: short(m.GetProcessId()), heard: now, registered: now,
	}
	for _, c := range m.GetWorkflows() {
		info.workflows = append(info.workflows, newCapability(c, c.GetVersion()))
	}
	for _, c := range m.GetTasks() {
		info.tasks = append(info.tasks, newCapability(c, ""))
	}
	s.d.workers.register(tenant, info)

	return &pb.WorkerRegistrationResponse{WorkerId: info.id, Success: true}, nil
}

// registered has the methods that the messages of workflows and tasks have in common.
type registered interface {
	GetKind() string
	GetName() string
	GetDescription() string
	GetTimeoutSeconds() int32
}

func newCapability(c registered, version string) capability {
	return capability{
		kind: model.Cut(c.GetKind(), maxText), name: model.Cut(c.GetName(), maxText), about: model.Cut(c.GetDescription(), maxAbout), version: model.Cut(version, maxText),
		timeout: max(time.Duration(c.GetTimeoutSeconds())*time.Second, 0),
	}
}

// kindsOf returns the kinds of capabilities.
func kindsOf(list []capability) []string {
	kinds := make([]string, 0, len(list))
	for _, c := range list {
		kinds = append(kinds, c.kind)
	}
	return kinds
}

// SendHeartbeat notes that a worker lives.
func (s *lifecycle) SendHeartbeat(ctx context.Context, m *pb.WorkerHeartbeatRequest) (*emptypb.Empty, error) {
	tenant, err := s.d.tenant(ctx, "")
	if err != nil {
		return nil, err
	}
	if !isWorkerID(tenant, m.GetWorkerId()) {
		return nil, fault.New(fault.NotFound, "there is no worker %.80q", m.GetWorkerId())
	}
	s.d.workers.beat(tenant, m.GetWorkerId(), time.Now())
	return &emptypb.Empty{}, nil
}
