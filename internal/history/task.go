package history

import (
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// task is how a task is to be carried out.
type task struct {
	Kind            text   `json:"kind"`
	Queue           text   `json:"queue"`
	Priority        int    `json:"priority,omitempty"`
	FairKey         text   `json:"fair_key,omitempty"`
	Weight          int    `json:"weight,omitempty"`
	Retry           *retry `json:"retry,omitempty"`
	ScheduleToStart span   `json:"schedule_to_start,omitempty"`
	AttemptTimeout  span   `json:"attempt_timeout,omitempty"`
	Heartbeat       span   `json:"heartbeat_timeout,omitempty"`
	ScheduleToClose span   `json:"schedule_to_close,omitempty"`
	Delay           span   `json:"delay,omitempty"`
	Breaker         text   `json:"breaker,omitempty"`
	Limits          []text `json:"limits,omitempty"`
	Trace           text   `json:"trace,omitempty"`
}

type retry struct {
	MaxAttempts int    `json:"max_attempts,omitempty"`
	Initial     span   `json:"initial,omitempty"`
	Max         span   `json:"max,omitempty"`
	Coefficient int64  `json:"coefficient,omitempty"` // in thousandths, like jitter
	Jitter      int64  `json:"jitter,omitempty"`
	Final       []text `json:"final,omitempty"`
}

// span is a duration such as 1m30s.
type span time.Duration

// MarshalText writes what UnmarshalText reads.
func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText reads a duration.
func (s *span) UnmarshalText(data []byte) error {
	d, err := time.ParseDuration(string(data))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 1m30s", data)
	}
	*s = span(d)
	return nil
}

func taskOf(s *model.TaskSpec) *task {
	if s == nil {
		return nil
	}
	t := &task{
		Kind: text(s.Kind), Queue: text(s.Queue), Priority: s.Priority, FairKey: text(s.Fair), Weight: s.Weight, ScheduleToStart: span(s.ToStart),
		AttemptTimeout: span(s.ToClose), Heartbeat: span(s.Silence), ScheduleToClose: span(s.Total), Delay: span(s.Delay), Breaker: text(s.Breaker),
		Limits: textsOf[text](s.Limits), Trace: text(s.Trace),
	}
	if r := &s.Retry; !r.IsZero() {
		t.Retry = &retry{r.MaxAttempts, span(r.Initial), span(r.Max), r.Coefficient, r.Jitter, textsOf[text](r.Final)}
	}
	return t
}

func (t *task) model() *model.TaskSpec {
	if t == nil {
		return nil
	}
	s := &model.TaskSpec{
		Kind: string(t.Kind), Queue: string(t.Queue), Priority: t.Priority, Fair: string(t.FairKey), Weight: t.Weight,
		ToStart: time.Duration(t.ScheduleToStart), ToClose: time.Duration(t.AttemptTimeout), Silence: time.Duration(t.Heartbeat),
		Total: time.Duration(t.ScheduleToClose), Delay: time.Duration(t.Delay), Breaker: string(t.Breaker), Limits: textsOf[string](t.Limits), Trace: string(t.Trace),
	}
	if r := t.Retry; r != nil {
		s.Retry = model.Retry{
			MaxAttempts: r.MaxAttempts, Initial: time.Duration(r.Initial), Max: time.Duration(r.Max), Coefficient: r.Coefficient, Jitter: r.Jitter,
			Final: textsOf[string](r.Final),
		}
	}
	return s
}

func textsOf[T, F ~string](list []F) []T {
	var out []T
	for _, s := range list {
		out = append(out, T(s))
	}
	return out
}
