package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/schedule"
)

// scheduledTask contains the settings of a scheduled task in a file. They are the settings that
// task submit has as flags, and the rest of the retry policy.
type scheduledTask struct {
	Queue      string         `yaml:"queue,omitempty"`
	Priority   int            `yaml:"priority,omitempty"`
	FairKey    string         `yaml:"fair_key,omitempty"`
	FairWeight int            `yaml:"fair_weight,omitempty"`
	Delay      time.Duration  `yaml:"delay,omitempty"`
	Attempts   int            `yaml:"attempts,omitempty"`
	Retry      scheduledRetry `yaml:"retry,omitempty"`
	Limits     []string       `yaml:"limits,omitempty"`
	Breaker    string         `yaml:"breaker,omitempty"`
	ToStart    time.Duration  `yaml:"schedule_to_start,omitempty"`
	Attempt    time.Duration  `yaml:"attempt_timeout,omitempty"`
	Heartbeat  time.Duration  `yaml:"heartbeat_timeout,omitempty"`
	ToClose    time.Duration  `yaml:"schedule_to_close,omitempty"`
}

type scheduledRetry struct {
	Initial     time.Duration `yaml:"initial,omitempty"`
	Max         time.Duration `yaml:"max,omitempty"`
	Coefficient float64       `yaml:"coefficient,omitempty"`
	Jitter      float64       `yaml:"jitter,omitempty"`
	Except      []string      `yaml:"except,omitempty"`
}

// fieldNames are the names of the settings of a task in errors about a file.
var fieldNames = model.SettingNames{
	schedule.NamedQueue:      "queue",
	schedule.NamedFair:       "fair_key",
	schedule.NamedBreaker:    "breaker",
	schedule.NamedLimit:      "limits:",
	schedule.NamedFinal:      "retry.except:",
	model.SettingPriority:    "priority",
	model.SettingWeight:      "fair_weight",
	model.SettingToStart:     "schedule_to_start",
	model.SettingToClose:     "attempt_timeout",
	model.SettingSilence:     "heartbeat_timeout",
	model.SettingTotal:       "schedule_to_close",
	model.SettingDelay:       "delay",
	model.SettingAttempts:    "attempts",
	model.SettingInitial:     "retry.initial",
	model.SettingMax:         "retry.max",
	model.SettingCoefficient: "retry.coefficient",
	model.SettingJitter:      "retry.jitter",
	model.SettingLimits:      "number of limits",
	model.SettingFinal:       "number of names in retry.except",
}

// fields returns the fields that are set, by their names in the file.
func (t *scheduledTask) fields() (all map[string]any) {
	data, err := yaml.Marshal(t)
	if err == nil {
		err = yaml.Unmarshal(data, &all)
	}
	if err != nil {
		panic(err) // cannot happen with our own struct
	}
	return all
}

// names returns the names of the fields that are set.
func (t *scheduledTask) names() []string { return slices.Sorted(maps.Keys(t.fields())) }

// taskToFile converts a stored task to the form of a file.
func taskToFile(s *model.TaskSpec) *scheduledTask {
	r := &s.Retry
	return &scheduledTask{
		Queue: s.Queue, Priority: s.Priority, FairKey: s.Fair, FairWeight: s.Weight, Delay: s.Delay, Attempts: r.MaxAttempts, Limits: s.Limits, Breaker: s.Breaker,
		ToStart: s.ToStart, Attempt: s.ToClose, Heartbeat: s.Silence, ToClose: s.Total,
		Retry: scheduledRetry{Initial: r.Initial, Max: r.Max, Coefficient: float64(r.Coefficient) / 1000, Jitter: float64(r.Jitter) / 1000, Except: r.Final},
	}
}

// spec converts the task to its stored form. Settings with the same meaning get the same form, so
// that apply sees no difference between them.
func (t *scheduledTask) spec(activity string) *model.TaskSpec {
	s := &model.TaskSpec{
		Kind: activity, Queue: cmp.Or(t.Queue, model.DefaultQueue), Priority: t.Priority, Fair: t.FairKey, Weight: t.FairWeight, Delay: t.Delay, Breaker: t.Breaker,
		ToStart: t.ToStart, ToClose: t.Attempt, Silence: t.Heartbeat, Total: t.ToClose, Limits: set(t.Limits),
		Retry: model.NewRetry(t.Attempts, t.Retry.Initial, t.Retry.Max, t.Retry.Coefficient, t.Retry.Jitter),
	}
	s.Retry.Final = set(t.Retry.Except)
	return s
}

// set returns a sorted list of names without duplicates, or nil if there are none.
func set(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// settingRows describes the settings of a scheduled task that are set.
func settingRows(t *model.TaskSpec) (rows [][]string) {
	row := func(said bool, name, text string) {
		if said {
			rows = append(rows, []string{name, text})
		}
	}

	span := func(d time.Duration, name string) { row(d != 0, name, d.String()) }
	row(t.Priority != 0, "Priority", strconv.Itoa(t.Priority))
	row(t.Fair != "" || t.Weight != 0, "Fair key", fmt.Sprintf("%s, weight %d", dash(t.Fair), max(t.Weight, 1)))
	span(t.Delay, "Delay")
	row(true, "Attempts", attemptsText(&t.Retry))
	row(len(t.Limits) > 0, "Limits", strings.Join(t.Limits, ", "))
	row(t.Breaker != "", "Breaker", t.Breaker)
	span(t.ToStart, "Schedule-to-start")
	span(t.ToClose, "Attempt time-out")
	span(t.Silence, "Heartbeat time-out")
	span(t.Total, "Schedule-to-close")

	return rows
}

// attemptsText describes a retry policy for people.
func attemptsText(r *model.Retry) string {
	text := "no limit"
	if r.MaxAttempts > 0 {
		text = strconv.Itoa(r.MaxAttempts)
	}
	share := func(thousandths int64) string { return strconv.FormatFloat(float64(thousandths)/1000, 'f', -1, 64) }

	say := func(said bool, format string, a any) {
		if said {
			text += fmt.Sprintf(format, a)
		}
	}

	say(r.Initial > 0, ", first pause %s", r.Initial)
	say(r.Coefficient > 0, ", each times %s", share(r.Coefficient))
	say(r.Max > 0, ", at most %s", r.Max)
	say(r.Jitter > 0, ", jitter %s", share(r.Jitter))
	say(len(r.Final) > 0, ", none after %s", strings.Join(r.Final, ", "))

	return text
}
