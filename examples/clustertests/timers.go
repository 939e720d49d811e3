package main

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/perdure/perdure"
)

// pendingTimer is a timer that has not fired.
type pendingTimer struct {
	ID        string    `json:"timer_id"`
	Scheduled time.Time `json:"scheduled_at"`
	DelayMS   int64     `json:"delay_ms"`
	Cancelled bool      `json:"cancelled"`
}

// timerFire is a timer that has fired.
type timerFire struct {
	ID        string    `json:"timer_id"`
	Scheduled time.Time `json:"scheduled_at"`
	Fired     time.Time `json:"fired_at"`
}

// timerBoard is the state of an entity: the timers of one owner.
type timerBoard struct {
	Pending []pendingTimer `json:"pending"`
	Fires   []timerFire    `json:"fires"`
}

func (b *timerBoard) find(id string) int {
	return slices.IndexFunc(b.Pending, func(t pendingTimer) bool { return t.ID == id })
}

// timerRequest schedules a timer for an owner.
type timerRequest struct {
	Owner   string `json:"owner"`
	ID      string `json:"timer_id"`
	DelayMS int64  `json:"delay_ms"`
}

// moment is a timer and the time at which its sleep ended.
type moment struct {
	Timer pendingTimer
	At    time.Time
}

// timers has a workflow that sleeps until a timer is due. After a few seconds, a sleeping execution
// uses no memory on any node.
type timers struct {
	entity   *perdure.Entity[timerBoard]
	add      *perdure.Operation[pendingTimer, perdure.Void]
	settle   *perdure.Operation[moment, bool]
	cancel   *perdure.Operation[string, bool]
	clear    *perdure.Operation[perdure.Void, perdure.Void]
	schedule *perdure.Workflow[timerRequest, perdure.Void]
}

func newTimers() *timers {
	e := perdure.NewEntity[timerBoard]("TimerTest", perdure.MaxIdle(idle))
	s := &timers{entity: e}
	s.add = perdure.NewOperation(e, "add_pending_timer", func(_ perdure.EntityCtx, b *timerBoard, t pendingTimer) (perdure.Void, error) {
		b.Pending = append(b.Pending, t)
		return perdure.Void{}, nil
	})
	s.settle = perdure.NewOperation(e, "settle", func(_ perdure.EntityCtx, b *timerBoard, m moment) (fired bool, err error) {
		i := b.find(m.Timer.ID)
		if fired = i < 0 || !b.Pending[i].Cancelled; fired {
			b.Fires = append(b.Fires, timerFire{m.Timer.ID, m.Timer.Scheduled, m.At})
		}
		if i >= 0 {
			b.Pending = slices.Delete(b.Pending, i, i+1)
		}
		return fired, nil
	})
	s.cancel = perdure.NewOperation(e, "cancel_timer", func(_ perdure.EntityCtx, b *timerBoard, id string) (bool, error) {
		i := b.find(id)
		if i < 0 || b.Pending[i].Cancelled {
			return false, nil
		}
		b.Pending[i].Cancelled = true
		return true, nil
	})
	s.clear = perdure.NewOperation(e, "clear_fires", func(_ perdure.EntityCtx, b *timerBoard, _ perdure.Void) (perdure.Void, error) {
		b.Fires = nil
		return perdure.Void{}, nil
	})

	s.schedule = perdure.NewWorkflow("ScheduleTimerWorkflow", func(ctx perdure.WorkflowCtx, q timerRequest) (perdure.Void, error) {
		t := pendingTimer{ID: q.ID, Scheduled: ctx.Now().UTC(), DelayMS: q.DelayMS}
		if _, err := s.add.Call(ctx, q.Owner, t); err != nil {
			return perdure.Void{}, err
		}
		if err := ctx.Sleep(time.Duration(q.DelayMS) * time.Millisecond); err != nil {
			return perdure.Void{}, err
		}
		_, err := s.settle.Call(ctx, q.Owner, moment{t, ctx.Now().UTC()})
		return perdure.Void{}, err
	})
	return s
}

func (s *timers) definitions() perdure.Group { return perdure.Group{s.entity, s.schedule} }

func (s *timers) routes(n *node, mux *http.ServeMux) {
	mux.Handle("POST /timer/{id}/schedule", answer(func(r *http.Request) (unit, error) {
		q, err := body[timerRequest](r)
		if err == nil && (q.ID == "" || q.DelayMS < 0 || q.DelayMS > maxDelay.Milliseconds()) {
			err = errors.New("the body needs a timer_id and a delay_ms of at most a year")
		}
		if err != nil {
			return unit{}, err
		}
		q.Owner = r.PathValue("id")
		_, err = execute(n, r, start[timerRequest, perdure.Void]{s.schedule, perdure.RawKey(q.Owner + "/" + q.ID), q})
		return unit{}, err
	}))
	mux.Handle("POST /timer/{id}/cancel", answer(func(r *http.Request) (bool, error) {
		q, err := body[timerRequest](r)
		if err != nil {
			return false, err
		}
		return persisted(n, r, target{"TimerTest", r.PathValue("id"), "cancel_timer"}, func(c perdure.Client, id perdure.CallOption) (bool, error) {
			return s.cancel.Call(c, r.PathValue("id"), q.ID, id)
		})
	}))
	mux.Handle("POST /timer/{id}/clear-fires", answer(func(r *http.Request) (unit, error) {
		_, err := persisted(n, r, target{"TimerTest", r.PathValue("id"), "clear_fires"}, func(c perdure.Client, id perdure.CallOption) (perdure.Void, error) {
			return s.clear.Call(c, r.PathValue("id"), perdure.Void{}, id)
		})
		return unit{}, err
	}))

	read := func(r *http.Request) (timerBoard, error) {
		return query(r, func() (timerBoard, error) {
			b, _, err := s.entity.Get(n.app.With(r.Context()), r.PathValue("id"))
			return b, err
		})
	}
	mux.Handle("GET /timer/{id}/fires", answer(func(r *http.Request) ([]timerFire, error) {
		b, err := read(r)
		return append([]timerFire{}, b.Fires...), err
	}))
	mux.Handle("GET /timer/{id}/pending", answer(func(r *http.Request) ([]pendingTimer, error) {
		b, err := read(r)
		return append([]pendingTimer{}, b.Pending...), err
	}))
}

// maxDelay is the longest timer.
const maxDelay = 365 * 24 * time.Hour
