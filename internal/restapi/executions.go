package restapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/query"
)

// How long a request waits for a result.
const (
	defaultWait = 30 * time.Second
	maxWait     = 10 * time.Minute
)

const executionsTag = "Executions"

// addExecutions adds the operations that start, list and read executions.
func (s *Server) addExecutions() {
	const one = "/executions/{workflow}/{key}"
	add(s, operation{id: "start-execution", method: http.MethodPost, path: "/executions", tag: executionsTag, summary: "Start an execution, or find the one that has the key", status: http.StatusCreated, also: http.StatusOK}, s.start)
	add(s, operation{id: "list-executions", method: http.MethodGet, path: "/executions", tag: executionsTag, summary: "List executions, newest first"}, s.list)
	add(s, operation{id: "count-executions", method: http.MethodGet, path: "/execution-count", tag: executionsTag, summary: "Count executions"}, s.count)
	add(s, operation{id: "tally-executions", method: http.MethodGet, path: "/execution-tally", tag: executionsTag, summary: "Count executions by status, workflow and reason, up to a bound"}, s.tally)
	add(s, operation{id: "list-stranded", method: http.MethodGet, path: "/stranded-executions", tag: executionsTag, summary: "List executions that cannot continue without help"}, s.stranded)
	add(s, operation{id: "describe-execution", method: http.MethodGet, path: one, tag: executionsTag, summary: "Describe an execution"}, s.describeExecution)
	add(s, operation{id: "explain-execution", method: http.MethodGet, path: one + "/explanation", tag: executionsTag, summary: "Explain why an execution makes no progress"}, s.explain)
	add(s, operation{id: "explain-graph", method: http.MethodGet, path: one + "/explanation/graph", tag: executionsTag, summary: "Explain as a graph what an execution waits for"}, s.explainGraph)
	add(s, operation{id: "await-execution", method: http.MethodGet, path: one + "/result", tag: executionsTag, summary: "Wait for the result of an execution", also: http.StatusAccepted, waits: true}, s.await)
	add(s, operation{id: "get-state", method: http.MethodGet, path: one + "/states/{name}", tag: executionsTag, summary: "Read a value that the code has set"}, s.state)
	add(s, operation{id: "query-execution", method: http.MethodPost, path: one + "/query", tag: executionsTag, summary: "Ask the code of an execution for information", waits: true}, s.query)
}

// startBody says what to start.
type startBody struct {
	Workflow string            `json:"workflow" minLength:"1" example:"order"`
	Key      string            `json:"key" minLength:"1" example:"42" doc:"The key of the execution; a workflow has at most one execution with this key"`
	Input    json.RawMessage   `json:"input,omitempty" doc:"Any JSON"`
	Labels   map[string]string `json:"labels,omitempty"`
	Reuse    string            `json:"reuse,omitempty" enum:"never,if_failed,always" doc:"Whether to start a new run if a closed execution has the key; never by default"`
	Signals  []namedValue      `json:"signals,omitempty" doc:"Signals that are sent together with the start, even if the execution already exists"`
	Delay    string            `json:"delay,omitempty" doc:"How long after the start the code runs, such as 90m"`
	StartAt  *time.Time        `json:"start_at,omitempty" doc:"Run the code at this time"`
	Timeout  string            `json:"timeout,omitempty" doc:"The maximum time of all runs together, such as 90m"`
	Attempts int               `json:"attempts,omitempty" minimum:"0" doc:"The maximum number of runs if the execution fails; by default what the workflow declares"`
}

// namedValue is a named value.
type namedValue struct {
	Name  string          `json:"name" minLength:"1" example:"paid"`
	Input json.RawMessage `json:"input,omitempty"`
}

// started says which run has the key now.
type started struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Existing bool   `json:"existing" doc:"Whether the key was taken; if so, this is the execution that has it"`
	Status   string `json:"status"`
}

type startInput struct {
	RequestHeader

	Body startBody
}

type startOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     started
}

var reuses = map[string]model.ReusePolicy{"": model.ReturnExisting, "never": model.ReturnExisting, "if_failed": model.ReuseIfFailed, "always": model.ReuseAlways}

func (s *Server) start(ctx context.Context, who *authn.Identity, in *startInput) (*startOutput, error) {
	r, err := startRequest(who.Tenant, &in.Body, in.RequestID)
	if err != nil {
		return nil, err
	}
	return s.begin(ctx, r)
}

// startRequest returns the request that a body describes.
func startRequest(tenant string, b *startBody, id string) (api.StartRequest, error) {
	if err := api.CheckWorkflowName(b.Workflow); err != nil {
		return api.StartRequest{}, err
	}
	r := api.StartRequest{
		Address: model.Address{Tenant: tenant, Type: b.Workflow, Key: b.Key}, Input: payload(b.Input), Reuse: reuses[b.Reuse], RequestID: id, Labels: model.Labels(b.Labels),
	}
	for _, m := range b.Signals {
		r.With = append(r.With, api.Message{Name: m.Name, Input: payload(m.Input)})
	}

	t, err := model.Terms{}, error(nil)
	if t.Delay, err = readDuration("delay", b.Delay); err != nil {
		return r, err
	}
	if t.Timeout, err = readDuration("timeout", b.Timeout); err != nil {
		return r, err
	}
	if b.StartAt != nil {
		t.NotBefore = model.TimeOf(*b.StartAt)
	}
	if b.Attempts > 0 {
		t.Retry = &model.Retry{MaxAttempts: b.Attempts, Given: true}
	}
	if t != (model.Terms{}) {
		r.Terms = &t
	}
	return r, nil
}

// begin starts an execution. The status says whether it is new.
func (s *Server) begin(ctx context.Context, r api.StartRequest) (*startOutput, error) {
	got, err := s.config.Backend.Start(ctx, r)
	if err != nil {
		return nil, err
	}
	a := r.Address
	out := &startOutput{
		Status: http.StatusCreated, Location: "/v1/executions/" + url.PathEscape(a.Type) + "/" + url.PathEscape(a.Key),
		Body: started{a.Type, a.Key, got.Run.String(), got.Existing, got.Status.String()},
	}
	if got.Existing {
		out.Status = http.StatusOK
	}
	return out, nil
}

// SelectQuery selects executions.
type SelectQuery struct {
	Query   string `query:"query" example:"workflow = \"order\"" doc:"Conditions such as workflow = \"order\" and status = \"open\""`
	AllRuns bool   `query:"all_runs" doc:"Include earlier runs of a chain"`
}

func (q *SelectQuery) request(tenant string) (api.ListRequest, error) {
	parsed, err := query.Parse(q.Query, time.Now())
	if err != nil {
		return api.ListRequest{}, err
	}
	r := parsed.Request(tenant)
	r.AllRuns = r.AllRuns || q.AllRuns
	return r, nil
}

// PageQuery selects a page of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"The maximum number of items of the page"`
	Cursor string `query:"cursor" doc:"The cursor of the previous page"`
}

// Execution is an execution in a list.
type Execution struct {
	Workflow string            `json:"workflow"`
	Key      string            `json:"key"`
	Run      string            `json:"run"`
	Status   string            `json:"status" enum:"running,completed,failed,canceled,continued,terminated"`
	Reason   string            `json:"reason,omitempty" doc:"Why it makes no progress, or why it failed"`
	Started  *time.Time        `json:"started"`
	Closed   *time.Time        `json:"closed,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Begins   *time.Time        `json:"begins,omitempty" doc:"When its code starts to run, if the start is delayed"`
	Expires  *time.Time        `json:"expires,omitempty" doc:"When the execution times out"`
	Attempt  int               `json:"attempt,omitempty" doc:"The number of the run in a series of retries; 2 and more mean that earlier runs failed"`
	Version  string            `json:"version,omitempty" doc:"The version that an open execution is pinned to: only workers of this version continue it. Only lists with versions=true have it"`
}

func executionOf(d *api.Description) Execution {
	e := Execution{
		Workflow: d.Start.Address.Type, Key: d.Start.Address.Key, Run: d.Start.Run.String(), Status: d.Outcome.Status.String(), Started: at(d.Start.At),
		Labels: labels(d.Labels), Begins: at(d.Start.Begins), Expires: at(d.Start.Expires), Attempt: d.Start.Attempt, Version: d.Version,
	}
	e.Reason = model.Summary(d.Reasons)
	if f := d.Outcome.Failure; f != nil {
		e.Reason = f.Message
	}
	if d.Outcome.Status.Closed() {
		e.Closed = at(d.Outcome.At)
	}
	return e
}

type listInput struct {
	SelectQuery
	PageQuery

	Explain  bool `query:"explain" doc:"Ask the owners of open executions for their reasons"`
	Versions bool `query:"versions" doc:"Read the versions that open executions are pinned to"`
}

func (s *Server) list(ctx context.Context, who *authn.Identity, in *listInput) (*reply[page[Execution]], error) {
	r, err := in.request(who.Tenant)
	if err != nil {
		return nil, err
	}
	r.Limit, r.Cursor, r.Explain, r.Versions = in.Limit, in.Cursor, in.Explain, in.Versions
	got, err := s.config.Backend.List(ctx, r)
	if err != nil {
		return nil, err
	}
	return ok(page[Execution]{each(got.Executions, executionOf), got.Cursor})
}

type cursorInput struct {
	Cursor string `query:"cursor" doc:"The cursor of the previous page"`
}

func (s *Server) stranded(ctx context.Context, who *authn.Identity, in *cursorInput) (*reply[page[Execution]], error) {
	got, err := s.config.Backend.Stranded(ctx, who.Tenant, in.Cursor)
	if err != nil {
		return nil, err
	}
	return ok(page[Execution]{each(got.Executions, executionOf), got.Cursor})
}

// target returns the target of a request.
func (t *TargetPath) target(who *authn.Identity) (api.Target, error) {
	run, err := readRun(t.Run)
	return api.Target{Address: t.address(who.Tenant), Run: run}, err
}

func (s *Server) describeExecution(ctx context.Context, who *authn.Identity, in *TargetPath) (*reply[description], error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	d, err := s.config.Backend.Describe(ctx, t)
	if err != nil {
		return nil, err
	}
	return ok(descriptionOf(&d))
}

func (s *Server) explain(ctx context.Context, who *authn.Identity, in *TargetPath) (*reply[explanation], error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	d, err := s.config.Backend.Describe(ctx, t)
	if err != nil {
		return nil, err
	}
	return ok(explanationOf(&d))
}

type awaitInput struct {
	TargetPath

	Wait string `query:"wait" example:"1s" doc:"How long to wait, at most 10m; 30s by default"`
}

// result is how an execution ended. Its status says if the execution has not ended yet.
type result struct {
	Run     string     `json:"run,omitempty"`
	Status  string     `json:"status" doc:"The status; running if the execution has not ended within the wait"`
	Output  any        `json:"output,omitempty"`
	Failure *failure   `json:"failure,omitempty"`
	Closed  *time.Time `json:"closed,omitempty"`
}

type awaitOutput struct {
	Status int
	Body   result
}

func (s *Server) await(ctx context.Context, who *authn.Identity, in *awaitInput) (*awaitOutput, error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	wait, err := readDuration("wait", in.Wait)
	if err != nil {
		return nil, err
	}
	if wait = cmp.Or(wait, defaultWait); wait < 0 || wait > maxWait {
		return nil, fault.New(fault.Invalid, "wait is %s, must be between 0 and %s", wait, maxWait)
	}

	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	got, err := s.config.Backend.Await(within, t)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return &awaitOutput{http.StatusAccepted, result{Status: model.Running.String()}}, nil
	}
	if err != nil {
		return nil, err
	}
	o := &got.Outcome
	return &awaitOutput{http.StatusOK, result{got.Run.String(), o.Status.String(), value(o.Output), failureOf(o.Failure), at(o.At)}}, nil
}

type stateInput struct {
	TargetPath

	Name string `path:"name" example:"progress"`
}

// valueBody is a value of the user.
type valueBody struct {
	Value any `json:"value" doc:"A JSON value as it is, a text as a string, and other bytes as an object with encoding, size and base64"`
}

func (s *Server) state(ctx context.Context, who *authn.Identity, in *stateInput) (*reply[valueBody], error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	p, found, err := s.config.Backend.State(ctx, t, in.Name)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fault.New(fault.NotFound, "%s has no state %.80q", nameOf(t.Address), in.Name)
	}
	return ok(valueBody{value(p)})
}

type queryInput struct {
	TargetPath

	Body namedValue
}

func (s *Server) query(ctx context.Context, who *authn.Identity, in *queryInput) (*reply[valueBody], error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	p, err := s.config.Backend.Query(ctx, api.QueryRequest{Target: t, Name: in.Body.Name, Input: payload(in.Body.Input)})
	if err != nil {
		return nil, err
	}
	return ok(valueBody{value(p)})
}
