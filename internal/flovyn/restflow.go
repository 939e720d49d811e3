package flovyn

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// flow returns the address of the execution that a request names.
func (c *call) flow() (model.Address, error) {
	return c.d.findFlow(c, c.org.Tenant, c.r.PathValue("id"))
}

// statusOf is the state of an execution in the words of the protocol.
func (d *Door) statusOf(info *api.Description) string {
	switch info.Outcome.Status {
	case model.Completed:
		return "COMPLETED"
	case model.Failed:
		return "FAILED"
	case model.Canceled, model.Terminated:
		return "CANCELLED"
	default:
	}

	if q := d.held(info.Start.Address); q != nil {
		if state, ok := q.stateOf(info.Start.Address.Key); ok {
			return map[runState]string{idle: "WAITING", ready: "PENDING", handed: "RUNNING"}[state]
		}
	}
	if len(info.Reasons) > 0 {
		switch info.Reasons[0].Code {
		case model.WaitWorker, model.WaitTurn, model.WaitElsewhere, model.WaitStart, model.WaitOwner:
		default:
			return "WAITING"
		}
	}
	return "PENDING"
}

// stateOf returns the state of a run. It returns false if the door does not have the run.
func (q *flowQueue) stateOf(id string) (runState, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.byKey[id]
	if r == nil {
		return idle, false
	}
	return r.state, true
}

// flowJSON describes an execution. In lists, the inputs and outputs are missing.
func (c *call) flowJSON(info *api.Description) map[string]any {
	s, o := &info.Start, &info.Outcome
	env := readEnvelope(s.Input)
	kind := env.Kind
	if i := slices.IndexFunc(info.Labels, func(l model.Label) bool { return l.Name == "kind" }); kind == "" && i >= 0 {
		kind = info.Labels[i].Value
	}

	m := map[string]any{
		"id": s.Address.Key, "orgId": c.org.ID, "tenantId": c.org.ID, "kind": kind, "workflowKind": kind, "status": c.d.statusOf(info),
		"queue": queueOf(s.Address), "taskQueue": queueOf(s.Address), "input": raw(env.Input), "output": raw(o.Output.Data), "error": nil,
		"createdAt": stamp(s.At), "startedAt": stamp(s.At), "completedAt": stamp(o.At), "metadata": env.Metadata, "prioritySeconds": env.Priority,
		"parentWorkflowExecutionId": nil,
	}

	if env.Version != "" {
		m["workflowVersion"] = env.Version
	}
	if o.Failure != nil {
		m["error"] = o.Failure.Message
	}
	if strings.HasPrefix(s.Parent.Address.Type, Prefix) {
		m["parentWorkflowExecutionId"] = s.Parent.Address.Key
	}

	return m
}

func getFlow(c *call) (int, any, error) {
	a, err := c.flow()
	if err != nil {
		return 0, nil, err
	}
	info, err := c.d.backend.Describe(c, api.Target{Address: a})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, c.flowJSON(&info), nil
}

func getEvents(c *call) (int, any, error) {
	a, err := c.flow()
	if err != nil {
		return 0, nil, err
	}
	since, err := c.number("sinceSequence", 0, 1<<30)
	if err != nil {
		return 0, nil, err
	}

	j, err := c.d.journal(c, a, c.d.older(c, a.Tenant))
	if err != nil {
		return 0, nil, err
	}

	events := make([]any, 0, len(j.records))
	for i := min(since, len(j.records)); i < len(j.records); i++ {
		e := &j.records[i]
		events = append(events, map[string]any{
			"sequence": i + 1, "sequenceNumber": i + 1, "eventType": e.kind, "timestamp": stamp(e.at), "createdAt": stamp(e.at), "data": json.RawMessage(e.data),
		})
	}

	return http.StatusOK, map[string]any{"events": events}, nil
}

func getFlowState(c *call) (int, any, error) {
	a, err := c.flow()
	if err != nil {
		return 0, nil, err
	}
	j, err := c.d.journal(c, a, false)
	if err != nil {
		return 0, nil, err
	}
	state := map[string]any{}
	for k, v := range j.state {
		state[k] = raw(v)
	}
	return http.StatusOK, map[string]any{"state": state}, nil
}

// maxOffset bounds the offset of a page, because the server reads all executions before the page.
const maxOffset = 10_000

// listStatuses are the statuses that lists can be filtered by.
var listStatuses = map[string][]model.Status{
	"PENDING": {model.Running}, "RUNNING": {model.Running}, "WAITING": {model.Running}, "COMPLETED": {model.Completed}, "FAILED": {model.Failed},
	"CANCELLED": {model.Canceled, model.Terminated},
}

// list returns a page of executions. It lists only executions whose type begins with the prefix.
func (c *call) list(prefix string, describe func(*api.Description) map[string]any) (page []any, total, limit, offset int, err error) {
	q := c.r.URL.Query()
	if limit, err = c.number("limit", 20, 1000); err != nil {
		return nil, 0, 0, 0, err
	}
	if offset, err = c.number("offset", 0, maxOffset); err != nil {
		return nil, 0, 0, 0, err
	}
	r := api.ListRequest{Tenant: c.org.Tenant, Limit: 500}
	status := strings.ToUpper(q.Get("status"))
	if status != "" {
		var known bool
		if r.Statuses, known = listStatuses[status]; !known {
			return nil, 0, 0, 0, fault.New(fault.Invalid, "there is no status %.80q", status)
		}
	}
	if kind := q.Get("kind"); kind != "" {
		if prefix == model.TaskPrefix {
			r.Workflows = []string{model.TaskPrefix + kind}
		} else {
			r.Labels = []model.LabelCondition{{Name: "kind", Values: []string{kind}}}
		}
	}

	page = []any{}
	for total < maxOffset+limit {
		p, err := c.d.backend.List(c, r)
		if err != nil {
			return nil, 0, 0, 0, err
		}

		for i := range p.Executions {
			x := &p.Executions[i]
			if !strings.HasPrefix(x.Start.Address.Type, prefix) || status != "" && c.d.statusOf(x) != status && x.Outcome.Status == model.Running {
				continue
			}
			if total++; total > offset && len(page) < limit {
				page = append(page, describe(x))
			}
		}

		if r.Cursor = p.Cursor; r.Cursor == "" {
			break
		}
	}
	return page, total, limit, offset, nil
}

func listFlows(c *call) (int, any, error) {
	page, total, limit, offset, err := c.list(Prefix, c.flowJSON)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"workflows": page, "total": total, "limit": limit, "offset": offset}, nil
}

// ttlForm is how a time is written: a number and a unit.
var ttlForm = regexp.MustCompile(`^(\d{1,9})([smhd])$`)

// parseTTL reads how long a key is kept, in seconds. It returns nil if the text is empty.
func parseTTL(text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	m := ttlForm.FindStringSubmatch(text)
	if m == nil {
		return nil, fault.New(fault.Invalid, "idempotencyKeyTTL is %.80q, must be a number and s, m, h or d", text)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return nil, fault.New(fault.Invalid, "idempotencyKeyTTL: %w", err)
	}
	n *= map[string]int64{"s": 1, "m": 60, "h": 3600, "d": 86400}[m[2]]
	return &n, nil
}

func startFlow(c *call) (int, any, error) {
	var m struct {
		Kind              string            `json:"kind"`
		Input             json.RawMessage   `json:"input"`
		Queue             string            `json:"queue"`
		TaskQueue         string            `json:"taskQueue"`
		PrioritySeconds   int64             `json:"prioritySeconds"`
		Version           string            `json:"version"`
		IdempotencyKey    string            `json:"idempotencyKey"`
		IdempotencyKeyTTL string            `json:"idempotencyKeyTTL"`
		Metadata          map[string]string `json:"metadata"`
	}
	if err := c.read(&m); err != nil {
		return 0, nil, err
	}

	if kind := c.r.PathValue("kind"); kind != "" {
		m.Kind = kind
	}
	if m.Queue == "" {
		m.Queue = m.TaskQueue
	}
	ttl, err := parseTTL(m.IdempotencyKeyTTL)
	if err != nil {
		return 0, nil, err
	}

	r := startRequest{env: envelope{Kind: m.Kind, Version: m.Version, Priority: m.PrioritySeconds, Metadata: m.Metadata, Input: m.Input}, queue: m.Queue, ttl: ttl}
	if m.IdempotencyKey != "" {
		r.key = &m.IdempotencyKey
	}
	a, isNew, err := c.d.start(c, c.org.Tenant, r)
	if err != nil {
		return 0, nil, err
	}

	info, err := c.d.backend.Describe(c, api.Target{Address: a})
	if err != nil {
		return 0, nil, err
	}
	self := strings.TrimSuffix(c.r.URL.Path, "/workflow-executions")
	self, _, _ = strings.Cut(self, "/workflows/")
	self += "/workflow-executions/" + a.Key
	status := http.StatusOK
	if isNew {
		status = http.StatusCreated
	}

	return status, map[string]any{
		"workflowExecutionId": a.Key, "status": c.d.statusOf(&info), "kind": m.Kind, "createdAt": stamp(info.Start.At),
		"links": map[string]string{"self": self, "events": self + "/events"}, "idempotencyKeyUsed": r.key != nil, "idempotencyKeyNew": isNew,
	}, nil
}

func signalFlow(c *call) (int, any, error) {
	var m struct {
		SignalName  string          `json:"signalName"`
		SignalValue json.RawMessage `json:"signalValue"`
	}
	if err := c.read(&m); err != nil {
		return 0, nil, err
	}

	a, err := c.flow()
	if err != nil {
		return 0, nil, err
	}
	n, err := c.d.signal(c, a, m.SignalName, m.SignalValue)
	if err != nil {
		return 0, nil, err
	}

	return http.StatusOK, map[string]any{"signalEventSequence": n}, nil
}

func signalWithStart(c *call) (int, any, error) {
	var m struct {
		WorkflowID    string            `json:"workflowId"`
		WorkflowKind  string            `json:"workflowKind"`
		WorkflowInput json.RawMessage   `json:"workflowInput"`
		Queue         string            `json:"queue"`
		SignalName    string            `json:"signalName"`
		SignalValue   json.RawMessage   `json:"signalValue"`
		Metadata      map[string]string `json:"metadata"`
	}
	if err := c.read(&m); err != nil {
		return 0, nil, err
	}

	r := startRequest{env: envelope{Kind: m.WorkflowKind, Metadata: m.Metadata, Input: m.WorkflowInput}, queue: m.Queue, key: &m.WorkflowID}
	a, created, sequence, err := c.d.signalWithStart(c, c.org.Tenant, r, m.SignalName, m.SignalValue)
	if err != nil {
		return 0, nil, err
	}

	return http.StatusOK, map[string]any{"workflowExecutionId": a.Key, "workflowCreated": created, "signalEventSequence": sequence, "signalDelivered": true}, nil
}

// cancelFlow ends an execution and, unless the request says otherwise, its open children. Workers
// of the protocol do not react to a cancellation, so cancelFlow does not wait for workers.
func cancelFlow(c *call) (int, any, error) {
	m := struct {
		Reason            string `json:"reason"`
		CascadeToChildren *bool  `json:"cascadeToChildren"`
	}{}
	if err := c.read(&m); err != nil {
		return 0, nil, err
	}

	a, err := c.flow()
	if err != nil {
		return 0, nil, err
	}
	tree := cancellation{c: c, reason: model.Cut(m.Reason, model.MaxReasonText), cascade: m.CascadeToChildren == nil || *m.CascadeToChildren}
	ended, err := tree.cancel(a, 0)
	if err != nil {
		return 0, nil, err
	}

	status := "CANCELLED"
	if !ended {
		status = "ALREADY_TERMINAL"
	}
	return http.StatusOK, map[string]any{"status": status, "cancelledChildren": tree.children}, nil
}

// maxCascade bounds how many generations of children a cancellation reaches.
const maxCascade = 64

// cancellation ends an execution, and also its children if the cancellation cascades.
type cancellation struct {
	c        *call
	reason   string
	cascade  bool
	children int // how many children it has ended
}

// cancel ends an execution, its open tasks and, if the cancellation cascades, its open children. It
// reports whether the execution was open.
func (t *cancellation) cancel(a model.Address, depth int) (bool, error) {
	c := t.c
	j, err := c.d.journal(c, a, false)
	if err != nil {
		return false, err
	}
	err = c.d.backend.Terminate(c, api.CancelRequest{Target: api.Target{Address: a}, Reason: t.reason})
	if fault.Is(err, fault.Conflict) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	for id, kind := range j.tasks {
		err := c.d.backend.Terminate(c, api.CancelRequest{Target: api.Target{Address: taskAddress(a.Tenant, kind, id)}, Reason: t.reason})
		if err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) {
			return true, err
		}
	}
	if !t.cascade || depth >= maxCascade {
		return true, nil
	}
	for id := range j.children {
		child, err := c.d.findFlow(c, a.Tenant, id)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return true, err
		}
		ended, err := t.cancel(child, depth+1)
		if err != nil {
			return true, err
		}
		if ended {
			t.children++
		}
	}
	return true, nil
}

// retryFlow continues a failed execution in a new run, which starts with the history up to the last
// failed step.
func retryFlow(c *call) (int, any, error) {
	a, err := c.flow()
	if err != nil {
		return 0, nil, err
	}
	info, err := c.d.backend.Describe(c, api.Target{Address: a})
	if err != nil {
		return 0, nil, err
	}
	if info.Outcome.Status != model.Failed {
		return 0, nil, fault.New(fault.Conflict, "workflow execution %s is %s: only a failed one can be retried", a.Key, c.d.statusOf(&info))
	}
	if _, err := c.d.backend.Retry(c, api.PastRequest{Source: api.Target{Address: a, Run: info.Start.Run}}); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"workflowExecutionId": a.Key, "status": "PENDING"}, nil
}

func listChildren(c *call) (int, any, error) {
	a, err := c.flow()
	if err != nil {
		return 0, nil, err
	}
	j, err := c.d.journal(c, a, false)
	if err != nil {
		return 0, nil, err
	}

	list := []any{}
	for id, name := range j.names {
		child, err := c.d.findFlow(c, a.Tenant, id)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		info, err := c.d.backend.Describe(c, api.Target{Address: child})
		if err != nil {
			return 0, nil, err
		}
		m := c.flowJSON(&info)
		m["childExecutionName"] = name
		list = append(list, m)
	}

	return http.StatusOK, map[string]any{"children": list, "total": len(list)}, nil
}

func resolvePromise(c *call) (int, any, error) {
	var m struct {
		Value json.RawMessage `json:"value"`
	}
	if err := c.read(&m); err != nil {
		return 0, nil, err
	}
	return c.settle(m.Value, nil)
}

func rejectPromise(c *call) (int, any, error) {
	var m struct {
		Error string `json:"error"`
	}
	if err := c.read(&m); err != nil {
		return 0, nil, err
	}
	return c.settle(nil, (&model.Failure{Message: m.Error}).Bounded())
}

// settle settles the promise that a request names. A request names a promise by its id or by its
// key; older clients name it by its execution and name.
func (c *call) settle(value []byte, f *model.Failure) (int, any, error) {
	id := strings.TrimPrefix(c.r.PathValue("id"), "id:")
	if key, ok := strings.CutPrefix(c.r.PathValue("id"), "key:"); ok {
		n, err := c.d.backend.Entity(c, keyAddress(c.org.Tenant, key))
		if err != nil {
			return 0, nil, err
		}
		var b binding
		if !n.Entity.Exists || json.Unmarshal(n.Entity.State.Data, &b) != nil || b.Type != "promise" || b.Expires <= model.TimeOf(time.Now()) {
			return 0, nil, fault.New(fault.NotFound, "there is no promise with the key %.80q", key)
		}
		id = b.ID
	}

	id, already, err := c.d.settlePromise(c, c.org.Tenant, id, value, f)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"resolved": !already, "alreadyResolved": already, "promiseId": id}, nil
}
