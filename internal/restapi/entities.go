package restapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const entitiesTag = "Entities"

// EntityPath names an entity or a service.
type EntityPath struct {
	Entity string `path:"entity" example:"account" doc:"The name of the entity; for a service, the text service: followed by its name"`
	Key    string `path:"key" example:"eu-1"`
}

func (p *EntityPath) address(who *authn.Identity) model.Address {
	return model.Address{Tenant: who.Tenant, Type: entityType(p.Entity), Key: p.Key}
}

// addEntities adds the operations on entities, their mailboxes and their locks.
func (s *Server) addEntities() {
	const one = "/entities/{entity}/{key}"
	add(s, operation{id: "list-entities", method: http.MethodGet, path: "/entities", tag: entitiesTag, summary: "List entities by type and key"}, s.listEntities(false))
	add(s, operation{id: "get-entity", method: http.MethodGet, path: one, tag: entitiesTag, summary: "Read the committed state of an entity"}, s.entity)
	add(s, operation{id: "edit-entity", method: http.MethodPut, path: one, tag: entitiesTag, summary: "Replace the state of an entity if its version is the expected one"}, s.editEntity)
	add(s, operation{id: "call-entity", method: http.MethodPost, path: one + "/call", tag: entitiesTag, summary: "Call an operation and wait for its result", waits: true}, s.callEntity)
	add(s, operation{id: "send-entity", method: http.MethodPost, path: one + "/send", tag: entitiesTag, summary: "Call an operation without waiting for it", status: http.StatusAccepted}, s.sendEntity)
	s.addEntityStream(one + "/stream")

	add(s, operation{id: "list-mailbox", method: http.MethodGet, path: one + "/mailbox", tag: entitiesTag, summary: "List the calls that wait for an entity"}, s.mailbox)
	s.addMailboxVerb(operation{id: "skip-mailbox-item", method: http.MethodPost, path: one + "/mailbox/{id}/skip", tag: entitiesTag, summary: "Move a waiting call behind the others"}, model.MailboxSkip)
	s.addMailboxVerb(operation{id: "drop-mailbox-item", method: http.MethodDelete, path: one + "/mailbox/{id}", tag: entitiesTag, summary: "Remove a waiting call; its caller gets an error"}, model.MailboxDrop)
	add(s, operation{id: "interrupt-entity", method: http.MethodPost, path: one + "/interrupt", tag: entitiesTag, summary: "Interrupt the running call of an entity"}, s.interruptEntity)
	add(s, operation{id: "list-locks", method: http.MethodGet, path: "/locks", tag: entitiesTag, summary: "List entities that are locked"}, s.listEntities(true))
	add(s, operation{id: "release-lock", method: http.MethodPost, path: "/locks/{entity}/{key}/release", tag: entitiesTag, summary: "Take a lock from its holder", status: http.StatusNoContent}, s.unlock)
}

// entity is an entity.
type entity struct {
	Entity  string     `json:"entity"`
	Key     string     `json:"key"`
	Exists  bool       `json:"exists"`
	Version int64      `json:"version" doc:"Counts the changes of the entity"`
	Created *time.Time `json:"created,omitempty"`
	Changed *time.Time `json:"changed,omitempty"`
	Expires *time.Time `json:"expires,omitempty" doc:"When the state is removed; absent for never"`
	State   any        `json:"state,omitempty"`
	// StateVersion is the version of the type of the state.
	StateVersion int               `json:"state_version,omitempty" doc:"The version of the type of the state"`
	Log          []operationRecord `json:"log,omitempty" doc:"The last operations, oldest first, if the entity keeps them; not in lists"`
	Lock         *lock             `json:"lock,omitempty"`
	Waiting      []waitedCall      `json:"waiting,omitempty" doc:"The first calls of its mailbox"`
	More         bool              `json:"more_waiting,omitempty"`
	Reasons      []reason          `json:"reasons,omitempty" doc:"Why the waiting calls do not run"`
}

// operationRecord is an operation in the log of an entity.
type operationRecord struct {
	Operation string     `json:"operation"`
	At        *time.Time `json:"at" doc:"When its result was stored"`
	From      string     `json:"from,omitempty" doc:"The execution that made the call"`
	RequestID string     `json:"request_id,omitempty"`
	Failure   *failure   `json:"failure,omitempty" doc:"Absent if the operation succeeded"`
	Bytes     int        `json:"bytes" doc:"The size of the input"`
	Input     any        `json:"input,omitempty" doc:"The input, if the entity keeps inputs"`
}

func operationRecordOf(r *model.OperationRecord) operationRecord {
	rec := operationRecord{Operation: r.Name, At: at(r.At), From: nameOf(r.From.Address), RequestID: r.RequestID, Bytes: r.Bytes, Input: value(r.Input)}
	if r.Failure != nil {
		rec.Failure = failureOf(r.Failure)
	}
	return rec
}

// lock says which section holds an entity.
type lock struct {
	Execution string     `json:"execution" doc:"The holder, as workflow/key"`
	Run       string     `json:"run"`
	Section   string     `json:"section,omitempty"`
	Epoch     int64      `json:"epoch" doc:"The fencing token"`
	Since     *time.Time `json:"since,omitempty"`
}

func entityOf(n *model.Entity) entity {
	e := entity{Entity: entityWord(n.Address.Type), Key: n.Address.Key, Exists: n.Exists, Version: n.Version, Changed: at(n.Changed)}
	if n.Exists {
		e.State, e.Created, e.Expires = value(n.State), at(n.Created), at(n.Expires)
		e.StateVersion = n.State.StateVersion()
	}
	if len(n.Log) > 0 {
		e.Log = each(n.Log, operationRecordOf)
	}
	if n.Locked() {
		e.Lock = &lock{nameOf(n.Holder.Address), n.Holder.Run.String(), n.Holder.ID, n.Epoch, at(n.Held)}
	}
	return e
}

type entitiesInput struct {
	PageQuery

	Entity string `query:"entity" doc:"Only this type"`
	Prefix string `query:"prefix" doc:"Only keys with this prefix"`

	MinVersion  int64     `query:"min_version" minimum:"0" doc:"Only entities with at least this version"`
	MaxVersion  int64     `query:"max_version" minimum:"0" doc:"Only entities with at most this version"`
	ChangedFrom time.Time `query:"changed_from" doc:"Changed at this time or later"`
	ChangedTo   time.Time `query:"changed_to" doc:"Changed before this time"`
	Waiting     bool      `query:"waiting" doc:"Only entities for which stored calls wait, in no particular order"`
	Expired     bool      `query:"expired" doc:"Only entities whose TTL has passed; without this parameter a list does not have them"`
}

// request returns the selection.
func (in *entitiesInput) request(tenant string, locked bool) api.EntityListRequest {
	r := api.EntityListRequest{
		Tenant: tenant, Type: entityType(in.Entity), KeyPrefix: in.Prefix, Locked: locked, Limit: in.Limit, Cursor: in.Cursor,
		MinVersion: in.MinVersion, MaxVersion: in.MaxVersion, Waiting: in.Waiting, Expired: in.Expired,
	}
	if !in.ChangedFrom.IsZero() {
		r.ChangedFrom = model.TimeOf(in.ChangedFrom)
	}
	if !in.ChangedTo.IsZero() {
		r.ChangedTo = model.TimeOf(in.ChangedTo)
	}
	return r
}

func (s *Server) listEntities(locked bool) func(context.Context, *authn.Identity, *entitiesInput) (*reply[page[entity]], error) {
	return func(ctx context.Context, who *authn.Identity, in *entitiesInput) (*reply[page[entity]], error) {
		got, err := s.config.Backend.ListEntities(ctx, in.request(who.Tenant, locked))
		if err != nil {
			return nil, err
		}
		return ok(page[entity]{each(got.Entities, entityOf), got.Cursor})
	}
}

// entityOutput is an entity with its version as ETag. A later edit names that version.
type entityOutput struct {
	ETag string `header:"ETag" doc:"The version of the entity, for If-Match"`
	Body entity
}

// etag returns a version as HTTP writes it.
func etag(v model.EntityVersion) string { return `"` + v.String() + `"` }

type editInput struct {
	EntityPath
	RequestHeader

	IfMatch     string `header:"If-Match" doc:"The ETag that the entity must have"`
	IfNoneMatch string `header:"If-None-Match" doc:"If it is *, the entity must not have a state"`
	Body        struct {
		State json.RawMessage `json:"state"`
	}
}

// version returns the version that the entity must have.
func (in *editInput) version() (v model.EntityVersion, err error) {
	switch {
	case in.IfNoneMatch == "*" && in.IfMatch == "":
		return v, nil
	case in.IfNoneMatch != "":
		return v, fault.New(fault.Invalid, "If-None-Match is %.40q, must be * and alone", in.IfNoneMatch)
	case in.IfMatch == "":
		return v, newProblem(http.StatusPreconditionRequired, fault.Invalid.String(),
			"an edit must say which version it replaces: send If-Match with the ETag of the entity, or If-None-Match: * for a new one")
	}

	v, found := model.ParseEntityVersion(strings.Trim(in.IfMatch, `"`))
	if !found {
		return v, fault.New(fault.Invalid, "If-Match is %.40q, must be the ETag of the entity", in.IfMatch)
	}
	return v, nil
}

// edited is the answer to an edit.
type edited struct {
	ETag string `header:"ETag" doc:"The new version of the entity"`
	Body struct {
		Version int64 `json:"version" doc:"Counts the changes of the entity"`
	}
}

func (s *Server) editEntity(ctx context.Context, who *authn.Identity, in *editInput) (*edited, error) {
	want, err := in.version()
	if err != nil {
		return nil, err
	}
	made, err := s.config.Backend.EditEntity(ctx, api.EditRequest{
		Address: in.address(who), Version: want, State: payload(in.Body.State), RequestID: in.RequestID,
	})
	if err != nil {
		return nil, s.unmetEdit(ctx, in.address(who), want, err)
	}

	out := &edited{ETag: etag(made)}
	out.Body.Version = made.Number
	return out, nil
}

// unmetEdit gives the error of an edit the HTTP status for a failed precondition, if the entity has
// another version than the expected one. An edit is also refused while the entity is locked or an
// operation runs. In these cases the caller need not read the entity again.
func (s *Server) unmetEdit(ctx context.Context, a model.Address, want model.EntityVersion, err error) error {
	if !fault.Is(err, fault.Conflict) {
		return err
	}
	got, unread := s.config.Backend.Entity(ctx, a)
	if unread != nil && !fault.Is(unread, fault.NotFound) || want.Fits(got.Entity.VersionNow()) {
		return err
	}
	return unmet(&want.Number, err)
}

func (s *Server) entity(ctx context.Context, who *authn.Identity, in *EntityPath) (*entityOutput, error) {
	got, err := s.config.Backend.Entity(ctx, in.address(who))
	if err != nil {
		return nil, err
	}
	e := entityOf(&got.Entity)
	e.Entity, e.Key, e.More, e.Reasons = in.Entity, in.Key, got.More, each(got.Reasons, reasonOf)
	for i := range got.Waiting {
		w := &got.Waiting[i]
		c := model.CallOf(i+1, w.Seq, w.At, &w.Message)
		e.Waiting = append(e.Waiting, waitedCallOf(&c))
	}
	return &entityOutput{etag(got.Entity.VersionNow()), e}, nil
}

type callInput struct {
	EntityPath
	RequestHeader

	Body callBody
}

// callBody is a call of an operation.
type callBody struct {
	Operation string          `json:"operation" minLength:"1" example:"deposit"`
	Input     json.RawMessage `json:"input,omitempty"`
	View      bool            `json:"view,omitempty" doc:"The operation is a view: it changes nothing, and the call is not stored"`
}

func (s *Server) callEntity(ctx context.Context, who *authn.Identity, in *callInput) (*reply[valueBody], error) {
	b := &in.Body
	p, err := s.config.Backend.Call(ctx, api.CallRequest{
		Address: in.address(who), Name: b.Operation, Input: payload(b.Input), RequestID: in.RequestID, View: b.View, Brief: b.View,
	})
	if err != nil {
		return nil, err
	}
	return ok(valueBody{value(p)})
}

type sendInput struct {
	EntityPath
	RequestHeader

	Body struct {
		Operation string          `json:"operation" minLength:"1" example:"deposit"`
		Input     json.RawMessage `json:"input,omitempty"`
	}
}

func (s *Server) sendEntity(ctx context.Context, who *authn.Identity, in *sendInput) (*none, error) {
	_, err := s.config.Backend.Call(ctx, api.CallRequest{
		Address: in.address(who), Name: in.Body.Operation, Input: payload(in.Body.Input), RequestID: in.RequestID, OneWay: true,
	})
	return done(err)
}

// waitedCall is a call or a signal that waits.
type waitedCall struct {
	ID        string     `json:"id"`
	Position  int        `json:"position,omitempty" doc:"The position in the mailbox, from 1"`
	Kind      string     `json:"kind,omitempty"`
	Name      string     `json:"name,omitempty" doc:"The operation, or the name of the signal"`
	Since     *time.Time `json:"since"`
	Bytes     int        `json:"bytes"`
	From      string     `json:"from,omitempty" doc:"The execution that sent it"`
	RequestID string     `json:"request_id,omitempty"`
	OneWay    bool       `json:"one_way,omitempty"`
	Running   bool       `json:"running,omitempty"`
	Input     any        `json:"input,omitempty"`
}

func waitedCallOf(c *model.Call) waitedCall {
	return waitedCall{
		ID: c.ID, Position: c.Position, Kind: c.Kind, Name: c.Operation, Since: at(c.At), Bytes: c.Bytes, From: nameOf(c.From.Address), RequestID: c.RequestID,
		OneWay: c.OneWay, Running: c.Running, Input: value(c.Input),
	}
}

// waitedCalls is a page of the calls or signals that wait, in the order of the mailbox or of the
// unread signals.
type waitedCalls struct {
	Items  []waitedCall `json:"items"`
	Total  int          `json:"total"`
	Cursor string       `json:"cursor,omitempty" doc:"The cursor of the next page; absent on the last page"`
}

func waitedCallsOf(c model.Calls, err error) (*reply[waitedCalls], error) {
	if err != nil {
		return nil, err
	}
	return ok(waitedCalls{each(c.Calls, waitedCallOf), c.Total, c.Cursor})
}

type mailboxInput struct {
	EntityPath
	PageQuery
}

func (s *Server) mailbox(ctx context.Context, who *authn.Identity, in *mailboxInput) (*reply[waitedCalls], error) {
	return waitedCallsOf(s.config.Backend.Mailbox(ctx, api.MailboxRequest{
		Address: in.address(who), Do: model.MailboxList, Cursor: in.Cursor, Limit: in.Limit,
	}))
}

type interruptInput struct {
	EntityPath

	ID string `query:"id" doc:"The id of the call to interrupt; by default the call that is running"`
}

func (s *Server) interruptEntity(ctx context.Context, who *authn.Identity, in *interruptInput) (*reply[waitedCalls], error) {
	return waitedCallsOf(s.config.Backend.Mailbox(ctx, api.MailboxRequest{Address: in.address(who), Do: model.MailboxInterrupt, ID: in.ID}))
}

type mailboxItemInput struct {
	EntityPath

	ID string `path:"id" example:"7-3f9a0c41d2e7" doc:"The id of the waiting call"`
}

// addMailboxVerb adds an operation on one waiting call.
func (s *Server) addMailboxVerb(o operation, verb string) {
	add(s, o, func(ctx context.Context, who *authn.Identity, in *mailboxItemInput) (*reply[waitedCalls], error) {
		return waitedCallsOf(s.config.Backend.Mailbox(ctx, api.MailboxRequest{Address: in.address(who), Do: verb, ID: in.ID}))
	})
}

type unlockInput struct {
	EntityPath
	RequestHeader

	Epoch int64 `query:"epoch" minimum:"0" doc:"The fencing token of the lock to release; by default the current lock"`
}

func (s *Server) unlock(ctx context.Context, who *authn.Identity, in *unlockInput) (*none, error) {
	return done(s.config.Backend.Unlock(ctx, api.UnlockRequest{Address: in.address(who), Epoch: in.Epoch, RequestID: in.RequestID}))
}
