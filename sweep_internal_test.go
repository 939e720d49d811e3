package perdure

import (
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func TestExpiredOutcomes(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Now()
	run := func(s model.Status, age time.Duration) *api.Description {
		return &api.Description{Outcome: model.Outcome{Status: s, At: model.TimeOf(now.Add(-age))}}
	}
	for name, c := range map[string]struct {
		d    *api.Description
		err  error
		last time.Duration
		want bool
	}{
		"open for a year":               {run(model.Running, 0), nil, 365 * day, false},
		"closed yesterday, acted early": {run(model.Completed, day), nil, 365 * day, false},
		"closed eight days ago":         {run(model.Failed, 8*day), nil, 9 * day, true},
		"unknown, acted last week":      {&api.Description{}, fault.New(fault.NotFound, "gone"), 8 * day, false},
		"unknown for long":              {&api.Description{}, fault.New(fault.NotFound, "gone"), 31 * day, true},
	} {
		if got, err := expired(c.d, c.err, now.Add(-c.last), now); got != c.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := expired(&api.Description{}, errors.New("away"), now, now); err == nil {
		t.Error("an error of the engine decides nothing")
	}
}
