package flovyn

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// No matter how many workers call, the door remembers a bounded number of them in a bounded number
// of bytes. The worker that called last is among them.
func TestWorkersAreBounded(t *testing.T) {
	t.Parallel()
	w, now := newWorkers(), time.Now()
	long := strings.Repeat("x", maxText)
	for i := range 1000 {
		info := &workerInfo{id: strconv.Itoa(i), name: long + strconv.Itoa(i), heard: now}
		for range 50 {
			info.tasks = append(info.tasks, capability{kind: long, name: long, about: long, version: long})
		}
		w.register("t", info)
	}

	for i := range maxWorkers + 10 {
		w.see("t", strconv.Itoa(i), now)
	}
	if len(w.all) > maxWorkers || w.bytes > maxWorkerBytes+1<<20 {
		t.Errorf("%d workers in %d bytes are remembered", len(w.all), w.bytes)
	}
	if w.all[workerKey{"t", strconv.Itoa(maxWorkers + 9)}] == nil {
		t.Error("the last worker is forgotten")
	}
	sum := 0
	for k, info := range w.all {
		sum += k.size() + info.size()
	}
	if sum != w.bytes {
		t.Errorf("%d bytes are counted, %d are used", w.bytes, sum)
	}
}

// taskSession counts reports.
type taskSession struct {
	api.TaskSession

	reports []model.TaskReport
}

func (s *taskSession) Report(_ context.Context, r model.TaskReport) error {
	s.reports = append(s.reports, r)
	return context.Canceled
}

func (s *taskSession) Slots(int) {}

// A late report about an attempt does not end the next attempt of the same task.
func TestLateNewsOfAnAttempt(t *testing.T) {
	t.Parallel()
	s := &taskSession{}
	d := &Door{places: newPlaces(), workers: newWorkers(), open: t.Context()}
	q := newTaskQueue(d, site{"t", "q"})
	q.session = s
	claim := model.Claim{Ref: model.ClaimRef{TaskRef: model.TaskRef{Address: taskAddress("t", "kind", newID())}}}
	first := &heldTask{claim: claim}
	second := &heldTask{claim: claim}
	q.held[second.id()] = second

	q.giveBack(first)
	if len(s.reports) != 0 {
		t.Errorf("the second attempt is reported: %v", s.reports)
	}
	q.giveBack(second)
	if len(s.reports) != 1 || !s.reports[0].Returned {
		t.Errorf("the reports are %v", s.reports)
	}
}

// The door counts the bytes of the histories that it keeps. It no longer counts a history that it
// has dropped.
func TestHistoriesAreBounded(t *testing.T) {
	t.Parallel()
	d := &Door{places: newPlaces(), workers: newWorkers(), open: t.Context(), cfg: Config{MaxHistories: 10_000}}
	q := newFlowQueue(d, site{"t", "q"})
	var all []*run
	for i := range 20 {
		id := model.RunID{byte(i + 1)}
		q.Activate(&api.Activation{
			Start: &model.Start{Run: id, Address: flowAddress("t", "q", newID()), Input: jsonPayload(make([]byte, 500))}, Generation: 1,
			Events: []model.Event{{Seq: 1, Kind: model.EventSignalReceived, Name: strconv.Itoa(i), Input: jsonPayload(make([]byte, 500))}},
		})
		all = append(all, q.runs[id])
	}

	kept, sum := 0, int64(0)
	for _, r := range all {
		if !r.shed {
			kept++
		}
		sum += r.bytes
	}
	if kept == 0 || kept == len(all) || sum != d.bytes.Load() || sum > d.cfg.MaxHistories {
		t.Errorf("%d of %d histories are kept, %d bytes, %d counted", kept, len(all), sum, d.bytes.Load())
	}
	for _, r := range all {
		q.Evict(r.start.Run, 1, "")
	}
	if n := d.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are still counted after all histories were dropped", n)
	}
}
