package postgres

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// States of a run in the column state. From stateClosed on, they are the numbers of its status.
const (
	stateRunnable = 0
	stateParked   = 1
	stateClosed   = int16(model.Completed)
)

// executionRow is a row of executions as stored, see executionColumns.
type executionRow struct {
	shard, state                   int16
	run                            [16]byte
	started, closed                int64
	current                        bool
	tenant, workflow, key          string
	start, outcome, waits, blocked []byte
}

// execution decodes the row.
func (r *executionRow) execution() (e store.Execution, err error) {
	e = store.Execution{Shard: model.ShardID(r.shard), Current: r.current, Parked: r.state == stateParked}
	a := model.Address{Tenant: r.tenant, Type: r.workflow, Key: r.key}
	e.Outcome.Status = model.Running
	if e.Start, err = model.DecodeStart(a, r.run, model.Time(r.started), r.start); err == nil && r.state >= stateClosed {
		e.Outcome, err = model.DecodeOutcome(model.Status(r.state), model.Time(r.closed), r.outcome)
	}
	if err == nil {
		e.Waits, err = model.DecodeReasons(r.waits)
	}

	if err == nil {
		var blocked []model.Reason
		if blocked, err = model.DecodeReasons(r.blocked); len(blocked) > 0 {
			e.Blocked = &blocked[0]
		}
	}

	if err != nil {
		return e, fault.New(fault.Corrupt, "row of run %s: %w", model.RunID(r.run), err)
	}
	return e, nil
}

// unreadable fills in the values of the columns of the row.
func (r *executionRow) unreadable(e *store.Execution, why error) {
	status := model.Running
	if r.state >= stateClosed {
		status = model.Status(r.state)
	}
	a := model.Address{Tenant: r.tenant, Type: r.workflow, Key: r.key}
	e.Unreadable(model.Start{Address: a, Run: r.run, At: model.Time(r.started)}, status, why)
}

// scanExecutions reads executionColumns. A row that cannot be decoded is an error, unless
// unreadable is set and fills it in.
func scanExecutions(rows pgx.Rows, unreadable func(*executionRow, *store.Execution, error)) ([]store.Execution, error) {
	var out []store.Execution
	err := eachExecution(rows, nil, func(r *executionRow) error {
		e, err := r.execution()
		if err != nil && unreadable != nil {
			unreadable(r, &e, err)
			err = nil
		}
		out = append(out, e)
		return err
	})
	return out, err
}

// eachExecution reads rows of executionColumns, with other columns before them.
func eachExecution(rows pgx.Rows, before []any, each func(*executionRow) error) error {
	var r executionRow
	var run pgtype.UUID
	var start, outcome, waits, blocked pgtype.DriverBytes
	to := append(before, &r.shard, &run, &r.started, &r.state, &r.closed, &r.current, &r.tenant, &r.workflow, &r.key, &start, &outcome, &waits, &blocked)
	_, err := pgx.ForEachRow(rows, to, func() error {
		r.run, r.start, r.outcome, r.waits, r.blocked = run.Bytes, start, outcome, waits, blocked
		return each(&r)
	})
	return err
}

// decodeExisting reads a row of stStartIfAbsent in binary form: the index of a start, and the
// execution that has its address, if any.
func decodeExisting(v [][]byte) (index int, found bool, e store.Execution, err error) {
	const columns = 14
	if len(v) == columns && len(v[0]) == 4 && v[1] == nil {
		return int(binary.BigEndian.Uint32(v[0])), false, e, nil
	}
	if len(v) != columns || len(v[0]) != 4 || len(v[1]) != 2 || len(v[2]) != 16 || len(v[3]) != 8 || len(v[4]) != 2 || len(v[5]) != 8 || len(v[6]) != 1 {
		return 0, false, e, fault.New(fault.Internal, "a row of an execution does not have the expected columns")
	}

	r := executionRow{
		shard: int16(binary.BigEndian.Uint16(v[1])), run: [16]byte(v[2]), started: int64(binary.BigEndian.Uint64(v[3])),
		state: int16(binary.BigEndian.Uint16(v[4])), closed: int64(binary.BigEndian.Uint64(v[5])), current: v[6][0] == 1,
		tenant: string(v[7]), workflow: string(v[8]), key: string(v[9]), start: v[10], outcome: v[11], waits: v[12], blocked: v[13],
	}
	if e, err = r.execution(); err != nil { // the batch is committed anyway
		e = store.Unread(e.Shard, model.Address{Tenant: r.tenant, Type: r.workflow, Key: r.key}, err)
	}

	return int(binary.BigEndian.Uint32(v[0])), true, e, nil
}
