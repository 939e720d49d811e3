package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
)

// readTimeout limits how long an RPC may read from the database.
const readTimeout = 30 * time.Second

// logRecord is one line of the log of an owner.
type logRecord struct {
	ID        string    `json:"id"`
	Action    string    `json:"action"`
	Timestamp time.Time `json:"timestamp"`
}

// logLine is the input of the step that writes a line.
type logLine struct{ Owner, ID, Action string }

func (l logLine) journalKey() string { return "ActivityWorkflow/" + l.Owner + "/" + l.ID }

// logs has a workflow that writes a log and calls an external system in between.
type logs struct {
	write  *perdure.Activity[logLine, string]
	call   *perdure.Activity[string, string]
	run    *perdure.Workflow[job, []string]
	reader *perdure.Service
	read   *perdure.RPC[perdure.Void, []logRecord]
}

func newLogs(pool *pgxpool.Pool) *logs {
	s := &logs{reader: perdure.NewService("ActivityTest", perdure.MaxIdle(idle), perdure.Concurrency(0))}
	s.write = newStep("log", pool, func(ctx context.Context, tx pgx.Tx, l logLine) (string, error) {
		_, err := tx.Exec(ctx, `insert into cluster_tests.activity_log (owner, id, action, at) values ($1, $2, $3, clock_timestamp()) on conflict do nothing`,
			l.Owner, l.ID, l.Action)
		return l.ID, err
	})
	// The external system is not real. A real call would pass perdure.IdempotencyKey(ctx).
	s.call = perdure.NewActivity("external-call", func(_ context.Context, url string) (string, error) {
		return "response_from_" + strings.ReplaceAll(url, "/", "_"), nil
	})

	s.run = perdure.NewWorkflow("ActivityWorkflow", func(ctx perdure.WorkflowCtx, j job) (results []string, err error) {
		add := func(result string, failed error) {
			results = append(results, result)
			err = cmp.Or(err, failed)
		}
		write := func(suffix, action string) { add(s.write.Run(ctx, logLine{j.Owner, j.ExecID + suffix, action})) }
		call := func(path string) { add(s.call.Run(ctx, "https://api.example.com/"+path)) }
		write("-start", "workflow_started")
		call("process")
		write("-process", "data_processed")
		call("complete")
		write("-complete", "workflow_completed")
		return results, err
	})

	s.read = perdure.NewRPC(s.reader, "get_activity_log", func(c perdure.EntityCtx, _ perdure.Void) ([]logRecord, error) {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		rows, err := pool.Query(ctx, `select id, action, at at time zone 'UTC' from cluster_tests.activity_log where owner = $1 order by at, n`, c.Key())
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowToStructByPos[logRecord])
	})
	return s
}

func (s *logs) definitions() perdure.Group { return perdure.Group{s.write, s.call, s.run, s.reader} }

func (s *logs) routes(n *node, mux *http.ServeMux) {
	mux.Handle("POST /activity/{id}/run", answer(func(r *http.Request) ([]string, error) {
		j, err := body[job](r)
		if err == nil && j.ExecID == "" {
			err = errors.New("the body needs an exec_id")
		}
		if err != nil {
			return nil, err
		}
		j.Owner = r.PathValue("id")
		return execute(n, r, start[job, []string]{s.run, perdure.RawKey(j.Owner + "/" + j.ExecID), j})
	}))

	mux.Handle("GET /activity/{id}/log", answer(func(r *http.Request) ([]logRecord, error) {
		return query(r, func() ([]logRecord, error) {
			return s.read.Call(n.app.With(r.Context()), r.PathValue("id"), perdure.Void{})
		})
	}))
}
