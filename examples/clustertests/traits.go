package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/perdure/perdure"
)

// auditEntry is one line of an audit log.
type auditEntry struct {
	ID        string    `json:"id"`
	Action    string    `json:"action"`
	By        string    `json:"actor"`
	Timestamp time.Time `json:"timestamp"`
	Details   *string   `json:"details"`
}

// auditable is a part of a state that keeps an audit log. Any entity can have it.
type auditable struct {
	Log []auditEntry `json:"log"`
}

func (a *auditable) note(action, actor, details string) {
	a.Log = append(a.Log, auditEntry{fmt.Sprintf("audit-%d", len(a.Log)+1), action, actor, time.Now().UTC(), &details})
}

// versioned is a part of a state that counts its changes.
type versioned struct {
	Version int64 `json:"version"`
}

// audited defines the view of auditable entities that returns the audit log.
func audited[S any](e *perdure.Entity[S], of func(S) auditable) *perdure.Operation[perdure.Void, []auditEntry] {
	return perdure.NewView(e, "get_audit_log", func(s S, _ perdure.Void) ([]auditEntry, error) {
		return append([]auditEntry{}, of(s).Log...), nil // an empty list, not null
	})
}

// counted defines the view of versioned entities that returns the version.
func counted[S any](e *perdure.Entity[S], of func(S) versioned) *perdure.Operation[perdure.Void, int64] {
	return perdure.NewView(e, "get_version", func(s S, _ perdure.Void) (int64, error) { return of(s).Version, nil })
}

// note is the state of an entity that is both auditable and versioned.
type note struct {
	Data string `json:"data"`
	auditable
	versioned
}

// traits is an entity that has two groups of views in addition to its own operations.
type traits struct {
	entity  *perdure.Entity[note]
	update  *perdure.Operation[string, perdure.Void]
	log     *perdure.Operation[perdure.Void, []auditEntry]
	version *perdure.Operation[perdure.Void, int64]
}

func newTraits() *traits {
	e := perdure.NewEntity[note]("TraitTest", perdure.MaxIdle(idle))
	return &traits{
		entity: e,
		update: perdure.NewOperation(e, "update", func(_ perdure.EntityCtx, s *note, data string) (perdure.Void, error) {
			s.Data = data
			s.note("update", "system", "Updated data to: "+data)
			s.Version++
			return perdure.Void{}, nil
		}),
		log:     audited(e, func(s note) auditable { return s.auditable }),
		version: counted(e, func(s note) versioned { return s.versioned }),
	}
}

func (s *traits) definitions() perdure.Group { return perdure.Group{s.entity} }

func (s *traits) routes(n *node, mux *http.ServeMux) {
	mux.Handle("GET /trait/{id}", answer(func(r *http.Request) (string, error) {
		return query(r, func() (string, error) {
			state, _, err := s.entity.Get(n.app.With(r.Context()), r.PathValue("id"))
			return state.Data, err
		})
	}))
	mux.Handle("GET /trait/{id}/audit-log", answer(func(r *http.Request) ([]auditEntry, error) {
		return query(r, func() ([]auditEntry, error) {
			return s.log.Call(n.app.With(r.Context()), r.PathValue("id"), perdure.Void{})
		})
	}))
	mux.Handle("GET /trait/{id}/version", answer(func(r *http.Request) (int64, error) {
		return query(r, func() (int64, error) {
			return s.version.Call(n.app.With(r.Context()), r.PathValue("id"), perdure.Void{})
		})
	}))

	mux.Handle("POST /trait/{id}/update", answer(func(r *http.Request) (unit, error) {
		in, err := body[struct{ Data *string }](r)
		if err != nil || in.Data == nil {
			return unit{}, cmp.Or(err, errors.New("the body needs data"))
		}
		_, err = persisted(n, r, target{"TraitTest", r.PathValue("id"), "update"}, func(c perdure.Client, id perdure.CallOption) (perdure.Void, error) {
			return s.update.Call(c, r.PathValue("id"), *in.Data, id)
		})
		return unit{}, err
	}))
}
