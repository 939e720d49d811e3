package restapi

import (
	"context"
	"net/http"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
)

// addUnread adds the operations on signals that code has not received.
func (s *Server) addUnread() {
	const path = "/executions/{workflow}/{key}/unread-signals"
	add(s, operation{id: "list-unread-signals", method: http.MethodGet, path: path, tag: executionsTag, summary: "List signals that the code has not received"},
		func(ctx context.Context, who *authn.Identity, in *TargetPath) (*reply[waitedCalls], error) {
			return s.unread(ctx, who, in, api.SignalsRequest{Do: model.MailboxList})
		})
	s.addUnreadVerb(operation{id: "skip-unread-signal", method: http.MethodPost, path: path + "/{id}/skip", tag: executionsTag, summary: "Move a signal behind the others"}, model.MailboxSkip)
	s.addUnreadVerb(operation{id: "drop-unread-signal", method: http.MethodDelete, path: path + "/{id}", tag: executionsTag, summary: "Remove a signal"}, model.MailboxDrop)
}

type unreadInput struct {
	TargetPath
	RequestHeader

	ID     string `path:"id" example:"7-3f9a0c41d2e7" doc:"The id of the signal"`
	Reason string `query:"reason"`
}

// addUnreadVerb adds an operation on one signal.
func (s *Server) addUnreadVerb(o operation, verb string) {
	add(s, o, func(ctx context.Context, who *authn.Identity, in *unreadInput) (*reply[waitedCalls], error) {
		return s.unread(ctx, who, &in.TargetPath, api.SignalsRequest{Do: verb, ID: in.ID, Reason: in.Reason, RequestID: in.RequestID})
	})
}

func (s *Server) unread(ctx context.Context, who *authn.Identity, path *TargetPath, r api.SignalsRequest) (*reply[waitedCalls], error) {
	t, err := path.target(who)
	if err != nil {
		return nil, err
	}
	r.Target = t
	return waitedCallsOf(s.config.Backend.Signals(ctx, r))
}
