package userdb

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Step identifies the step to which an outcome belongs.
type Step struct {
	Run model.RunID
	ID  string
	// Execution and Cluster name the run of the step, for people and for the clean-up.
	Execution string
	Cluster   string
}

// key returns the primary key of the outcome of the step. A step has one outcome, so the column
// generation is always 0.
func (s *Step) key() []any { return []any{s.Run.String(), s.ID, int64(0)} }

// Attempt is one try of a step.
type Attempt struct {
	Step
	// AsOf is when the owner of the run last confirmed the attempt. An attempt that begins long
	// after that has no effect.
	AsOf model.Time
	// Limit is how long the attempt may take. 0 means that only the general limits apply.
	Limit time.Duration
	// Body acts in the transaction.
	Body func(ctx context.Context, tx Tx) (model.Payload, error)
}

// Bounds of an attempt.
const (
	beginWithin = 24 * time.Hour   // after AsOf
	maxIdle     = time.Minute      // between two statements, or the limit of the attempt if longer
	maxAge      = 5 * time.Minute  // age of a transaction, or the limit of the attempt if longer
	margin      = 15 * time.Second // added to limits that this process enforces too
)

// Run makes the attempt. If the step already has an outcome, Run returns that outcome instead. A
// failure means that the stored outcome of the step is a failure. An error means that the step has
// no known outcome. In most cases the attempt had no effect. Its effect is unknown if the answer to
// its commit was lost, or if user code has ended the transaction.
func (d *Database) Run(ctx context.Context, a *Attempt) (model.Payload, *model.Failure, error) {
	age := max(maxAge, a.Limit+margin)
	ctx, cancel := context.WithTimeoutCause(ctx, age+margin, fmt.Errorf("the transaction of an activity may take at most %s: set a longer AttemptTimeout", age))
	defer cancel()
	for try := 0; ; try++ {
		out, stands, err := d.once(ctx, a, age)
		// If it is unknown whether the commit succeeded, make the attempt again. If the first
		// transaction is still in progress, the insert of the outcome waits for it. Then the insert
		// shows whether the first transaction was committed.
		if err == nil || !isTransient(err) && !doubtful(err) || !pause(ctx, try) {
			return out, stands, err
		}
	}
}

// once makes the attempt once, in one transaction.
func (d *Database) once(ctx context.Context, a *Attempt, age time.Duration) (out model.Payload, stands *model.Failure, err error) {
	tx, err := d.src.Begin(ctx)
	if err != nil {
		return out, nil, fmt.Errorf("begin: %w", err)
	}

	ended := false
	defer func() { // runs also if the body panics or ends its goroutine
		if !ended {
			rollBack(ctx, tx)
		}
	}()

	query, args := d.begin(a, age)
	n, err := tx.Exec(ctx, query, args...)
	if err != nil {
		return out, nil, fmt.Errorf("claim the outcome: %w", err)
	}

	if n == 0 {
		ended = true
		rollBack(ctx, tx)
		return d.loadOutcome(ctx, a)
	}

	if out, err = a.Body(ctx, tx); err != nil {
		return model.Payload{}, nil, err
	}
	if err = d.keep(ctx, tx, &a.Step, model.Outcome{Output: out}); err != nil {
		return model.Payload{}, nil, err
	}
	ended = true
	if err = commit(ctx, tx); err != nil {
		return model.Payload{}, nil, err
	}

	return out, nil, nil
}

// begin returns the first statement of an attempt. The statement also limits the transaction on the
// server, so that a process that hangs does not block others for long. Stricter limits of the
// server stay.
func (d *Database) begin(a *Attempt, age time.Duration) (string, []any) {
	args := append(a.key(), a.Execution, a.Cluster, int64(a.AsOf.Add(beginWithin))/1000)
	query := d.sql(Outcomes, d.dialect.begin)
	if d.dialect == &sqlite {
		return query, args
	}
	whole := ""
	if d.limits.whole >= 0 {
		whole = "\n  and set_config('transaction_timeout', $9::text, true) is not null"
	}

	stricter := func(server, ours time.Duration) string {
		if server > 0 {
			ours = min(server, ours)
		}
		return text(ours.Milliseconds())
	}

	args = append(args, stricter(d.limits.idle, max(maxIdle, a.Limit)), stricter(d.limits.statement, age))
	if whole != "" {
		args = append(args, stricter(d.limits.whole, age))
	}
	return strings.Replace(query, "{whole}", whole, 1), args
}

// keep writes the outcome into the row that the attempt inserted. If the row is missing, user code
// has ended the transaction.
func (d *Database) keep(ctx context.Context, tx Tx, s *Step, o model.Outcome) error {
	n, err := tx.Exec(ctx, d.sql(Outcomes, `update {table} set outcome = $4 where run = $1 and step = $2 and generation = $3 and outcome is null`),
		append(s.key(), model.AppendOutcome(nil, &o))...)
	switch {
	case err != nil && (ctx.Err() != nil || !over(err)):
		return fmt.Errorf("keep the outcome: %w", err)
	case err != nil || n != 1:
		return errEnded
	}
	return nil
}

// errEnded means that user code has ended the transaction itself. In that case it is unknown what
// was committed.
var errEnded = fault.New(fault.Invalid,
	"the function of a transactional activity has committed or rolled back its transaction. Perdure does that when the function returns. It is unknown which changes were committed")

// IsMisuse reports whether an error says that user code has ended the transaction itself.
func IsMisuse(err error) bool { return err == errEnded } //nolint:errorlint // it is returned as it is

// loadOutcome returns the outcome that another attempt has stored, or why there is none.
func (d *Database) loadOutcome(ctx context.Context, a *Attempt) (model.Payload, *model.Failure, error) {
	found, o, err := d.find(ctx, &a.Step)
	switch {
	case err != nil:
		return model.Payload{}, nil, err
	case !found:
		return model.Payload{}, nil, fault.New(fault.Unavailable, "the attempt is older than %s by the clock of the database: "+
			"the process was suspended, or its clock differs from the clock of the database", beginWithin)
	}
	return o.Output, o.Failure, nil
}

// find reads the stored outcome.
func (d *Database) find(ctx context.Context, s *Step) (found bool, o model.Outcome, err error) {
	var body []byte
	query := d.sql(Outcomes, `select exists (select 1 from {table} where run = $1 and step = $2 and generation = $3),
  (select outcome from {table} where run = $1 and step = $2 and generation = $3)`)
	if err = d.read(ctx, query, s.key(), &found, &body); err != nil || !found {
		return false, o, err
	}
	if body == nil { // user code committed before the step had an outcome
		return true, model.Outcome{Failure: &model.Failure{Kind: model.FailureInvalid, Message: errEnded.Error(), Permanent: true}}, nil
	}
	o, err = model.DecodeOutcome(model.Completed, 0, body)
	return true, o, err
}

// Settle makes a failure the outcome of a step, unless the step already has an outcome. It returns
// the outcome of the step. It waits for an attempt that is in progress. Later attempts do nothing.
func (d *Database) Settle(ctx context.Context, s *Step, f *model.Failure) (model.Payload, *model.Failure, error) {
	for try := 0; ; try++ {
		out, stands, err := d.settle(ctx, s, f)
		if err == nil || !isTransient(err) && !doubtful(err) || !pause(ctx, try) {
			return out, stands, err
		}
	}
}

func (d *Database) settle(ctx context.Context, s *Step, f *model.Failure) (model.Payload, *model.Failure, error) {
	claim := d.sql(Outcomes, `insert into {table} (run, step, generation, execution, cluster, outcome)
values ($1, $2, $3, $4, $5, $6) on conflict (run, step, generation) do nothing`)
	args := append(s.key(), s.Execution, s.Cluster, model.AppendOutcome(nil, &model.Outcome{Failure: f}))
	var n int64

	err := d.within(ctx, func(tx Tx) (err error) {
		n, err = tx.Exec(ctx, claim, args...)
		return err
	})
	if err != nil || n == 1 {
		return model.Payload{}, f, err
	}

	found, o, err := d.find(ctx, s)
	if err == nil && !found {
		err = fault.New(fault.Unavailable, "the outcome was removed while it was read")
	}
	return o.Output, o.Failure, err
}
