package restapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
)

// addSubmit adds the operation that starts a task without a workflow.
func (s *Server) addSubmit() {
	add(s, operation{id: "submit-task", method: http.MethodPost, path: "/tasks", tag: tasksTag, summary: "Submit a task without a workflow", status: http.StatusCreated, also: http.StatusOK}, s.submit)
}

// TaskSettings say how a task is executed.
type TaskSettings struct {
	Queue      string   `json:"queue,omitempty" doc:"The queue of the task; the default is the queue named default"`
	Priority   int      `json:"priority,omitempty" doc:"The priority; tasks with a larger number start first"`
	FairKey    string   `json:"fair_key,omitempty" doc:"Tasks with the same fair key form a group, and each group gets a fair share of the queue"`
	FairWeight int      `json:"fair_weight,omitempty" minimum:"0" doc:"The weight of the fair key: 2 gets twice the share of 1; the default is 1"`
	Delay      string   `json:"delay,omitempty" doc:"How long the task waits before the first attempt, such as 90m"`
	Attempts   int      `json:"attempts,omitempty" minimum:"0" doc:"The maximum number of attempts; the default is no limit"`
	Limits     []string `json:"limits,omitempty" maxItems:"8" doc:"The names of limits that apply to the task"`
	Breaker    string   `json:"breaker,omitempty" doc:"The name of the circuit breaker of the task"`
	ToStart    string   `json:"schedule_to_start,omitempty" doc:"The maximum time that the task waits for a worker, such as 10m"`
	ToClose    string   `json:"attempt_timeout,omitempty" doc:"The maximum time of one attempt, such as 10m"`
	Silence    string   `json:"heartbeat_timeout,omitempty" doc:"The maximum time between two heartbeats, such as 30s"`
	Total      string   `json:"schedule_to_close,omitempty" doc:"The maximum time of all attempts and the pauses between them, such as 24h"`
}

// spec returns the settings as they are stored.
func (t *TaskSettings) spec(activity string) (*model.TaskSpec, error) {
	s := &model.TaskSpec{
		Kind: activity, Queue: cmp.Or(t.Queue, model.DefaultQueue), Priority: t.Priority, Fair: t.FairKey, Weight: t.FairWeight, Breaker: t.Breaker,
		Limits: slices.Compact(slices.Sorted(slices.Values(t.Limits))), Retry: model.Retry{MaxAttempts: t.Attempts},
	}
	for _, one := range []struct {
		name, text string
		to         *time.Duration
	}{
		{"delay", t.Delay, &s.Delay},
		{"schedule_to_start", t.ToStart, &s.ToStart},
		{"attempt_timeout", t.ToClose, &s.ToClose},
		{"heartbeat_timeout", t.Silence, &s.Silence},
		{"schedule_to_close", t.Total, &s.Total},
	} {
		var err error
		if *one.to, err = readDuration(one.name, one.text); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// submitBody describes a task.
type submitBody struct {
	TaskSettings

	Activity string            `json:"activity" minLength:"1" example:"mail"`
	Key      string            `json:"key,omitempty" doc:"The key of the task; an activity has at most one task with this key; without a key, each request creates a new task"`
	Input    json.RawMessage   `json:"input,omitempty" doc:"Any JSON"`
	Labels   map[string]string `json:"labels,omitempty"`
	Reuse    string            `json:"reuse,omitempty" enum:"never,if_failed,always" doc:"Whether to run the task again if a closed task has the key; never by default"`
}

type submitInput struct {
	RequestHeader

	Body submitBody
}

func (s *Server) submit(ctx context.Context, who *authn.Identity, in *submitInput) (*startOutput, error) {
	b := &in.Body
	spec, err := b.spec(b.Activity)
	if err != nil {
		return nil, err
	}
	// If the body has no key, the request id is the key, so that a repeated request finds the task.
	key := cmp.Or(b.Key, in.RequestID)
	if key == "" {
		key = uuid.Must(uuid.NewV7()).String()
	}
	return s.begin(ctx, api.StartRequest{
		Address: model.Address{Tenant: who.Tenant, Type: model.TaskPrefix + b.Activity, Key: key}, Input: payload(b.Input), Labels: model.Labels(b.Labels),
		Reuse: reuses[b.Reuse], RequestID: in.RequestID, Task: spec,
	})
}
