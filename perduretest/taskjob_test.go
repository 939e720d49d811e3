package perduretest_test

import (
	"context"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// TestScheduledTask checks that a schedule submits one task per day, with the key of the day, to
// the queue of the job.
func TestScheduledTask(t *testing.T) {
	t.Parallel()
	cleaned := perduretest.NewFake(func(context.Context, string) (int, error) { return 1, nil })
	clean := perdure.DeclareActivity[string, int]("clean", perdure.OnQueue("low"))
	daily := perdure.NewSchedule("daily", perdure.Cron("0 2 * * *", ""), clean.Job("logs", perdure.Labels(map[string]string{"team": "x"})))

	perduretest.Run(t, perdure.Group{clean.Bind(cleaned.Call), daily}, func(t *testing.T, env *perduretest.Env) {
		env.Advance(24 * time.Hour)
		env.Restart()
		env.Advance(48 * time.Hour)
		if calls := cleaned.Calls(); len(calls) != 3 || calls[0].Input != "logs" {
			t.Errorf("called %v", calls)
		}
		x := clean.Execution(perdure.RawKey("daily@2000-01-02T02:00:00Z"))
		if n, err := x.Result(env.With()); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := env.App().Executions().Count(env.Context(), `workflow = "task:clean" and label.team = "x"`); n != 3 || err != nil {
			t.Errorf("%d tasks, %v", n, err)
		}
		if info, err := daily.Describe(env.With()); err != nil || info.Fired != 3 || info.Failed != 0 {
			t.Errorf("%+v, %v", info, err)
		}
	})
}
