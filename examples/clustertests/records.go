package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
)

// execution is the record that a workflow writes about its own execution.
type execution struct {
	ID    string   `json:"id"`
	Steps []string `json:"steps_completed"`
	// Result is nil while the workflow runs.
	Result *string `json:"result"`
}

// job is the input of the workflows: the owner of the execution, and what to do.
type job struct {
	Owner  string `json:"owner"`
	ExecID string `json:"exec_id"`
	FailAt int    `json:"fail_at"`
	Steps  int    `json:"steps"`
}

// entry is the input of the steps that write the record.
type entry struct {
	Workflow, Owner, ExecID string
	Step                    string // create, mark, or the name of a step
	Result                  string
}

func (e entry) journalKey() string {
	return fmt.Sprintf("%s/%s/%s/%s", e.Workflow, e.Owner, e.ExecID, e.Step)
}

// records has the workflows whose steps are activities, and a service that reads what they wrote.
type records struct {
	create, complete, mark *perdure.Activity[entry, perdure.Void]
	simple, failing, long  *perdure.Workflow[job, string]

	service *perdure.Service
	get     *perdure.RPC[string, *execution]
	list    *perdure.RPC[perdure.Void, []execution]
}

func newRecords(pool *pgxpool.Pool) *records {
	s := &records{service: perdure.NewService("WorkflowTest", perdure.MaxIdle(idle), perdure.Concurrency(0))}
	s.create = newStep("record-create", pool, func(ctx context.Context, tx pgx.Tx, e entry) (v perdure.Void, err error) {
		_, err = tx.Exec(ctx, `insert into cluster_tests.execution (owner, id) values ($1, $2) on conflict do nothing`, e.Owner, e.ExecID)
		return v, err
	})
	s.complete = newStep("record-step", pool, func(ctx context.Context, tx pgx.Tx, e entry) (v perdure.Void, err error) {
		_, err = tx.Exec(ctx, `update cluster_tests.execution set steps = array_append(steps, $3) where owner = $1 and id = $2`, e.Owner, e.ExecID, e.Step)
		return v, err
	})
	s.mark = newStep("record-mark", pool, func(ctx context.Context, tx pgx.Tx, e entry) (v perdure.Void, err error) {
		_, err = tx.Exec(ctx, `update cluster_tests.execution set result = $3 where owner = $1 and id = $2`, e.Owner, e.ExecID, e.Result)
		return v, err
	})

	s.simple = perdure.NewWorkflow("SimpleWorkflow", func(ctx perdure.WorkflowCtx, j job) (string, error) {
		return s.run(ctx, entry{"SimpleWorkflow", j.Owner, j.ExecID, "", ""}, []string{"step1", "step2", "step3"}, -1)
	})
	s.failing = perdure.NewWorkflow("FailingWorkflow", func(ctx perdure.WorkflowCtx, j job) (string, error) {
		return s.run(ctx, entry{"FailingWorkflow", j.Owner, j.ExecID, "", ""}, numbered(3), j.FailAt)
	})
	s.long = perdure.NewWorkflow("LongWorkflow", func(ctx perdure.WorkflowCtx, j job) (string, error) {
		return s.run(ctx, entry{"LongWorkflow", j.Owner, j.ExecID, "", ""}, numbered(j.Steps), -1)
	})

	s.get = perdure.NewRPC(s.service, "get_execution", func(ctx perdure.EntityCtx, id string) (*execution, error) {
		all, err := readExecutions(pool, `where owner = $1 and id = $2`, ctx.Key(), id)
		if err != nil || len(all) == 0 {
			return nil, err
		}
		return &all[0], nil
	})
	s.list = perdure.NewRPC(s.service, "list_executions", func(ctx perdure.EntityCtx, _ perdure.Void) ([]execution, error) {
		return readExecutions(pool, `where owner = $1`, ctx.Key())
	})
	return s
}

// run creates the record, completes the steps and marks the result. If failAt is the index of a
// step, run marks the execution as failed at that step and returns an error.
func (s *records) run(ctx perdure.WorkflowCtx, e entry, steps []string, failAt int) (string, error) {
	do := func(a *perdure.Activity[entry, perdure.Void], step, result string) error {
		e.Step, e.Result = step, result
		_, err := a.Run(ctx, e)
		return err
	}
	if err := do(s.create, "create", ""); err != nil {
		return "", err
	}

	for i, step := range steps {
		if i == failAt {
			if err := do(s.mark, "mark", "failed:"+step); err != nil {
				return "", err
			}
			return "", errors.New("workflow failed at " + step)
		}
		if err := do(s.complete, step, ""); err != nil {
			return "", err
		}
	}

	result := "completed:" + e.ExecID
	return result, do(s.mark, "mark", result)
}

// numbered returns n names of steps: step0, step1 and so on.
func numbered(n int) (steps []string) {
	for i := range n {
		steps = append(steps, "step"+strconv.Itoa(i))
	}
	return steps
}

func readExecutions(pool *pgxpool.Pool, where string, args ...any) ([]execution, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	rows, err := pool.Query(ctx, `select id, steps, result from cluster_tests.execution `+where+` order by id collate "C"`, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[execution])
}

func (s *records) definitions() perdure.Group {
	return perdure.Group{s.create, s.complete, s.mark, s.simple, s.failing, s.long, s.service}
}

func (s *records) routes(n *node, mux *http.ServeMux) {
	for path, w := range map[string]*perdure.Workflow[job, string]{"run-simple": s.simple, "run-failing": s.failing, "run-long": s.long} {
		mux.Handle("POST /workflow/{id}/"+path, answer(func(r *http.Request) (string, error) {
			j, err := body[job](r)
			j.Owner = r.PathValue("id")
			switch {
			case err != nil:
				return "", err
			case j.ExecID == "" || j.FailAt < 0 || j.Steps < 0 || j.Steps > maxSteps:
				return "", fmt.Errorf("the body needs an exec_id; fail_at and steps must be at least 0, and steps at most %d", maxSteps)
			}
			return execute(n, r, start[job, string]{w, perdure.RawKey(j.Owner + "/" + j.ExecID), j})
		}))
	}

	mux.Handle("GET /workflow/{id}/execution/{exec}", answer(func(r *http.Request) (*execution, error) {
		return query(r, func() (*execution, error) {
			return s.get.Call(n.app.With(r.Context()), r.PathValue("id"), r.PathValue("exec"))
		})
	}))
	mux.Handle("GET /workflow/{id}/executions", answer(func(r *http.Request) ([]execution, error) {
		return query(r, func() ([]execution, error) {
			return s.list.Call(n.app.With(r.Context()), r.PathValue("id"), perdure.Void{})
		})
	}))
}

// maxSteps limits the number of steps of one execution, and so the size of its history.
const maxSteps = 10_000
