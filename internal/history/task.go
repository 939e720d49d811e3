package history

import (
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// task says how a task is executed.
type task struct {
	Kind     text     `json:"kind"`
	Queue    text     `json:"queue"`
	Priority int      `json:"priority,omitempty"`
	Fair     text     `json:"fair,omitempty"`
	Weight   int      `json:"weight,omitempty"`
	Retry    *retry   `json:"retry,omitempty"`
	ToStart  duration `json:"schedule_to_start,omitzero"`
	ToClose  duration `json:"start_to_close,omitzero"`
	Silence  duration `json:"heartbeat,omitzero"`
	Total    duration `json:"schedule_to_close,omitzero"`
	Delay    duration `json:"delay,omitzero"`
	Breaker  text     `json:"breaker,omitempty"`
	Limits   []text   `json:"limits,omitempty"`
	Trace    text     `json:"trace,omitempty"`
}

type retry struct {
	MaxAttempts int      `json:"max_attempts,omitempty"`
	Initial     duration `json:"initial,omitzero"`
	Max         duration `json:"max,omitzero"`
	Coefficient int64    `json:"coefficient,omitempty"` // in thousandths, like Jitter
	Jitter      int64    `json:"jitter,omitempty"`
	Final       []text   `json:"final,omitempty"`
	Given       bool     `json:"given,omitempty"`
}

// duration is written as 1m30s.
type duration time.Duration

// MarshalText writes the duration as Go does.
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration such as 1m30s.
func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 1m30s", b)
	}
	*d = duration(v)
	return nil
}

func taskOf(t *model.TaskSpec) *task {
	if t == nil {
		return nil
	}
	out := &task{
		Kind: text(t.Kind), Queue: text(t.Queue), Priority: t.Priority, Fair: text(t.Fair), Weight: t.Weight, ToStart: duration(t.ToStart), ToClose: duration(t.ToClose),
		Silence: duration(t.Silence), Total: duration(t.Total), Delay: duration(t.Delay), Breaker: text(t.Breaker), Limits: texts(t.Limits), Trace: text(t.Trace),
	}
	if r := &t.Retry; !r.IsZero() {
		out.Retry = retryOf(r)
	}
	return out
}

func (t *task) model() *model.TaskSpec {
	if t == nil {
		return nil
	}
	out := &model.TaskSpec{
		Kind: string(t.Kind), Queue: string(t.Queue), Priority: t.Priority, Fair: string(t.Fair), Weight: t.Weight, ToStart: time.Duration(t.ToStart),
		ToClose: time.Duration(t.ToClose), Silence: time.Duration(t.Silence), Total: time.Duration(t.Total), Delay: time.Duration(t.Delay), Breaker: string(t.Breaker),
		Limits: words(t.Limits), Trace: string(t.Trace),
	}
	if r := t.Retry; r != nil {
		out.Retry = r.model()
	}
	return out
}

func retryOf(r *model.Retry) *retry {
	return &retry{r.MaxAttempts, duration(r.Initial), duration(r.Max), r.Coefficient, r.Jitter, texts(r.Final), r.Given}
}

func (r *retry) model() model.Retry {
	return model.Retry{
		MaxAttempts: r.MaxAttempts, Initial: time.Duration(r.Initial), Max: time.Duration(r.Max), Coefficient: r.Coefficient, Jitter: r.Jitter, Final: words(r.Final),
		Given: r.Given,
	}
}

func texts(in []string) (out []text) {
	for _, s := range in {
		out = append(out, text(s))
	}
	return out
}

func words(in []text) (out []string) {
	for _, s := range in {
		out = append(out, string(s))
	}
	return out
}
