package disk

import (
	"context"
	"errors"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// TornStore splits a read that makes several calls of the store into several rounds. Each round
// repeats the answers of earlier rounds and makes one further call.
type TornStore struct {
	store.Store
	answers []any
	Call    int
	Budget  int
	Stopped bool
}

var errStopped = errors.New("to be continued")

// answer returns the answer to the next call: an earlier answer, the result of ask, or errStopped.
func answer[T any](t *TornStore, ask func() (T, error)) (v T, err error) {
	t.Call++
	if t.Call <= len(t.answers) {
		return t.answers[t.Call-1].(T), nil
	}
	if t.Budget == 0 {
		t.Stopped = true
		return v, errStopped
	}
	t.Budget--
	if v, err = ask(); err == nil {
		t.answers = append(t.answers, v)
	}
	return v, err
}

// LoadExecution implements store.Store.
func (t *TornStore) LoadExecution(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (*store.Execution, error) {
	return answer(t, func() (*store.Execution, error) { return t.Store.LoadExecution(ctx, shard, a, run) })
}

// LoadEvents implements store.Store.
func (t *TornStore) LoadEvents(ctx context.Context, key store.RunKey, after int64, _, maxBytes int) ([]model.Event, error) {
	return answer(t, func() ([]model.Event, error) { return t.Store.LoadEvents(ctx, key, after, 3, maxBytes) })
}

// LoadRun reads the run in parts, so that a read can stop between two parts.
//
//arch:parameters the interface store.Store
func (t *TornStore) LoadRun(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, limit, maxBytes int) (store.Run, error) {
	return store.LoadRunByParts(ctx, t, shard, a, run, limit, maxBytes)
}

// LoadRuns reads the runs in parts too, so that a read can stop between two parts.
func (t *TornStore) LoadRuns(ctx context.Context, keys []store.AddressKey, limit, maxBytes int) ([]store.Run, error) {
	return store.LoadRunsByParts(ctx, t, keys, limit, maxBytes)
}

// LoadRunTimers implements store.Store.
func (t *TornStore) LoadRunTimers(ctx context.Context, key store.RunKey) ([]store.Timer, error) {
	return answer(t, func() ([]store.Timer, error) { return t.Store.LoadRunTimers(ctx, key) })
}
