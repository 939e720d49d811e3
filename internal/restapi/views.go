package restapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
)

const viewsTag = "Views"

// addViews adds the operations on saved views.
func (s *Server) addViews() {
	add(s, operation{id: "list-views", method: http.MethodGet, path: "/views", tag: viewsTag, summary: "List saved views by name"}, s.listViews)
	add(s, operation{id: "get-view", method: http.MethodGet, path: "/views/{name}", tag: viewsTag, summary: "Read a saved view"}, s.view)
	add(s, operation{id: "set-view", method: http.MethodPut, path: "/views/{name}", tag: viewsTag, summary: "Create or replace a saved view"}, s.setView)
	add(s, operation{id: "delete-view", method: http.MethodDelete, path: "/views/{name}", tag: viewsTag, summary: "Remove a saved view", status: http.StatusNoContent}, s.deleteView)
}

// ViewBody is the part of a view that people set.
type ViewBody struct {
	Page    string          `json:"page,omitempty" default:"executions" example:"executions" doc:"The page of the console that it is a view of; the server checks only queries of executions"`
	Query   string          `json:"query,omitempty" example:"status = \"failed\""`
	Note    string          `json:"note,omitempty"`
	Display json.RawMessage `json:"display,omitempty" doc:"Further settings of the console, as any JSON of at most 8 KiB"`
}

// viewInfo is a saved view.
type viewInfo struct {
	ViewBody

	Name    string     `json:"name"`
	Owner   string     `json:"owner,omitempty" doc:"The caller that created it"`
	Created *time.Time `json:"created"`
	Changed *time.Time `json:"changed"`
	Version int64      `json:"version" doc:"The version, which is also the ETag"`
}

func viewOf(v *api.View) viewInfo {
	return viewInfo{ViewBody{v.Page, v.Query, v.Note, v.Display}, v.Name, v.Owner, at(v.Created), at(v.Changed), v.Version}
}

func (s *Server) listViews(ctx context.Context, who *authn.Identity, _ *nothing) (*reply[page[viewInfo]], error) {
	got, err := s.config.Backend.Views(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	return ok(page[viewInfo]{Items: each(got, viewOf)})
}

type viewOutput struct {
	ETag string `header:"ETag"`
	Body viewInfo
}

func viewReply(v *api.View) (*viewOutput, error) {
	return &viewOutput{`"` + strconv.FormatInt(v.Version, 10) + `"`, viewOf(v)}, nil
}

func (s *Server) view(ctx context.Context, who *authn.Identity, in *NamePath) (*viewOutput, error) {
	got, err := s.config.Backend.Views(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	for i := range got {
		if got[i].Name == in.Name {
			return viewReply(&got[i])
		}
	}
	return nil, fault.New(fault.NotFound, "there is no view %.80s", in.Name)
}

type setViewInput struct {
	NamePath
	MatchHeader

	Body ViewBody
}

func (s *Server) setView(ctx context.Context, who *authn.Identity, in *setViewInput) (*viewOutput, error) {
	want, err := in.version()
	if err != nil {
		return nil, err
	}
	b := &in.Body
	v, err := s.config.Backend.SetView(ctx, api.ViewChange{
		Tenant: who.Tenant, Expected: want, View: api.View{Name: in.Name, Page: b.Page, Query: b.Query, Note: b.Note, Display: b.Display},
	})
	if err != nil {
		return nil, unmet(want, err)
	}
	return viewReply(&v)
}

type deleteViewInput struct {
	NamePath
	MatchHeader
}

func (s *Server) deleteView(ctx context.Context, who *authn.Identity, in *deleteViewInput) (*none, error) {
	want, err := in.version()
	if err != nil {
		return nil, err
	}
	return done(unmet(want, s.config.Backend.DeleteView(ctx, api.ViewTarget{Tenant: who.Tenant, Name: in.Name, Expected: want})))
}
