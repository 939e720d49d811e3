package restapi_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/restapi"
)

// refusingEdits is an engine that refuses all edits of entities.
type refusingEdits struct {
	api.Backend
	refused atomic.Pointer[refusedEdit]
}

// refusedEdit is an edit that the engine refuses. The entity has the version 3, or does not exist.
type refusedEdit struct {
	with   fault.Kind
	absent bool
	match  string
	status int
}

func (e *refusingEdits) EditEntity(context.Context, api.EditRequest) (model.EntityVersion, error) {
	return model.EntityVersion{}, fault.New(e.refused.Load().with, "the edit is refused")
}

func (e *refusingEdits) Entity(context.Context, model.Address) (info api.EntityInfo, err error) {
	if e.refused.Load().absent {
		return info, fault.New(fault.NotFound, "there is no entity")
	}
	info.Entity.Exists, info.Entity.Version = true, 3
	return info, nil
}

// The answer to an edit is 412 only if the entity has another version: the caller then reads the
// entity again. If the entity is locked, or an operation runs, the answer is 409.
func TestStatusOfRefusedEdits(t *testing.T) {
	t.Parallel()
	e := &refusingEdits{}
	w := newWorld(t, func(c *restapi.Config) { e.Backend, c.Backend = c.Backend, e })
	for _, c := range []refusedEdit{
		{fault.Conflict, false, "3", http.StatusConflict}, // it is locked
		{fault.Conflict, false, "2", http.StatusPreconditionFailed},
		{fault.Conflict, true, "3", http.StatusPreconditionFailed},
		{fault.Unavailable, false, "2", http.StatusServiceUnavailable},
	} {
		e.refused.Store(&c)
		w.want(c.status, "the edit is refused", http.MethodPut, "/v1/entities/account/eu-1", `{"state":80}`, "If-Match", fmt.Sprintf("%q", c.match))
	}
}
