package batch

import (
	"encoding/json"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// StateProgress is the name of the state in which a batch job stores its progress.
const StateProgress = "progress"

// Bounds of a batch job.
const (
	// MaxID bounds the id of a batch, because the batch makes request ids from its own id and the
	// id of a run.
	MaxID = 100
	// MaxQuery and MaxReason bound the texts of a batch, which every run of its chain carries.
	MaxQuery  = 16 << 10
	MaxReason = 1000
	// MaxInput bounds the stored form of the value of a signal.
	MaxInput = 256 << 10
	// MaxOpen is how many batch jobs of a tenant may be open.
	MaxOpen = 100
)

// applies says which executions a verb applies to, as the end of a query.
var applies = map[string]string{
	api.BatchCancel: open, api.BatchTerminate: open, api.BatchSignal: open, api.BatchPause: open, api.BatchResume: open,
	api.BatchRetry:  ` and status in ("failed", "canceled", "terminated")`,
	api.BatchReset:  "",
	api.BatchDelete: ` and status = "closed"`,
}

const open = ` and status = "open"`

// Narrow restricts a query to the executions that a verb applies to. It reports false for an
// unknown verb.
func Narrow(verb, query string) (string, bool) {
	end, known := applies[verb]
	return query + end, known
}

// Spec is what a batch job does. It is stored as plain JSON.
type Spec struct {
	Verb string `json:"verb"`
	// Query is the query of the caller. Selects is the whole selection that the batch makes of this
	// query, with absolute times.
	Query   string            `json:"query"`
	Selects string            `json:"selects"`
	Reason  string            `json:"reason,omitempty"`
	Signal  string            `json:"signal,omitempty"`
	Input   model.JSONPayload `json:"input,omitzero"`
	Before  string            `json:"before,omitempty"`
	After   int64             `json:"after,omitempty"`
	Placed  bool              `json:"placed,omitempty"`
	By      string            `json:"by,omitempty"`
	// Began is when the batch started, in the first run of its chain.
	Began time.Time `json:"began"`
	// Matched is how many executions the query selected when the batch started.
	Matched int64 `json:"matched"`
	// Asked is a digest of the request. With it the service recognizes a repetition of the request.
	Asked []byte `json:"asked"`
}

// Input is the input of one run of a batch job: what the batch does, and from where the run
// continues.
type Input struct {
	Spec Spec `json:"spec"`
	// Cursor is where the run continues the listing; empty for the first run.
	Cursor string `json:"cursor,omitempty"`
	// Progress is the sum of the previous runs.
	Progress Progress `json:"progress"`
}

// Progress is how far a batch is.
type Progress struct {
	Done    int64  `json:"done"`
	Skipped int64  `json:"skipped"`
	Failed  int64  `json:"failed"`
	Errors  []Item `json:"errors,omitempty"`
}

// Item is an execution that a batch acts on, and what has gone wrong with it.
type Item struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Kind     string `json:"kind,omitempty"`
	Text     string `json:"text,omitempty"`
}

// Add adds the results of a page. It keeps the last errors.
func (p *Progress) Add(page *Progress) {
	p.Done, p.Skipped, p.Failed = p.Done+page.Done, p.Skipped+page.Skipped, p.Failed+page.Failed
	all := append(append([]Item{}, p.Errors...), page.Errors...)
	p.Errors = all[max(0, len(all)-api.MaxBatchErrors):]
}

// Encode returns the input as a payload.
func (in *Input) Encode() (model.Payload, error) {
	data, err := json.Marshal(in)
	return model.Payload{Data: data}, err
}

// Decode reads the input of a run.
func Decode(p model.Payload) (in Input, err error) {
	if p.Encoding != model.JSON {
		return in, fault.New(fault.Corrupt, "a batch job is encoded as %s: it must be plain JSON", p.Form())
	}
	if err := json.Unmarshal(p.Data, &in); err != nil {
		return in, fault.New(fault.Corrupt, "the input of a batch job cannot be read: %w", err)
	}
	return in, nil
}

// Describe returns a batch from its stored forms: the description of its current run, and its
// state, which is empty before its first page.
func Describe(d *api.Description, state model.Payload) (b api.Batch, err error) {
	in, err := Decode(d.Start.Input)
	if err != nil {
		return b, err
	}
	progress := in.Progress
	if len(state.Data) > 0 {
		if err := json.Unmarshal(state.Data, &progress); err != nil {
			return b, fault.New(fault.Corrupt, "the progress of batch %s cannot be read: %w", d.Start.Address.Key, err)
		}
	}

	s := &in.Spec
	b = api.Batch{
		ID: d.Start.Address.Key, Verb: s.Verb, Query: s.Query, Selects: s.Selects, Reason: s.Reason, Signal: s.Signal, By: s.By, Started: model.TimeOf(s.Began),
		Status: d.Outcome.Status, Failure: d.Outcome.Failure,
		Progress: api.BatchProgress{Matched: s.Matched, Done: progress.Done, Skipped: progress.Skipped, Failed: progress.Failed},
	}
	if d.Outcome.Status.Closed() {
		b.Ended = d.Outcome.At
	} else {
		b.Reasons = d.Reasons
	}
	for i := range progress.Errors {
		e := &progress.Errors[i]
		run, err := model.ParseRunID(e.Run)
		if err != nil {
			return b, fault.New(fault.Corrupt, "the progress of batch %s has the run %.80q: %w", b.ID, e.Run, err)
		}
		b.Progress.Errors = append(b.Progress.Errors, api.BatchError{Workflow: e.Workflow, Key: e.Key, Run: run, Kind: e.Kind, Text: e.Text})
	}
	return b, nil
}
