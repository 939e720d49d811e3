// Package delayed has the code of executions that make one call of an entity or a service later.
//
// A delayed call is an execution of the built-in workflow [Type]. The start options say when its
// code runs. Until that time the execution can be listed, described and cancelled like any other.
// When its code runs, it sends the call once, and it ends when the call is stored in the mailbox.
// If the mailbox is full, the execution waits and tries again.
package delayed

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/schedule"
)

// Type is the workflow of delayed calls. Every app and every server has its code.
const Type = model.SendType

// Retention is how long the store keeps the execution of a delayed call after its end. During that
// time, another SendLater under the key of the execution makes no second call.
const Retention = 24 * time.Hour

// Call is the input of an execution: the call that it makes.
type Call struct {
	// To is the type of the entity or service that is called, with its prefix.
	To   string `json:"to"`
	Key  string `json:"key"`
	Name string `json:"name"`
	// Input has the form that the payload settings of the sender give it.
	Input schedule.Payload `json:"input,omitzero"`
}

// Encode returns the call as the input of an execution. The input is plain JSON, so that every
// process can run the execution.
func (c *Call) Encode() (model.Payload, error) {
	data, err := json.Marshal(c)
	return model.Payload{Data: data}, err
}

// Decode reads the input of an execution.
func Decode(p model.Payload) (c Call, err error) {
	if p.Encoding != model.JSON {
		return c, fault.New(fault.Invalid, "a delayed call is encoded as %s: it must be plain JSON", p.Form())
	}
	if err := json.Unmarshal(p.Data, &c); err != nil {
		return c, fault.New(fault.Invalid, "cannot read the input of a delayed call: %w", err)
	}
	if !(model.Address{Type: c.To}).IsEntity() {
		return c, fault.New(fault.Invalid, "a delayed call of %q: it is neither an entity nor a service", c.To)
	}
	return c, nil
}

// Pauses between attempts to put the call into a full mailbox.
const (
	firstPause = time.Second
	maxPause   = time.Minute
	// maxAttempts is how many attempts one run makes.
	maxAttempts = 50
)

// Code sends the call. It is the code of the workflow.
func Code(x replay.Ctx, p model.Payload) (model.Payload, error) {
	c, err := Decode(p)
	if err != nil {
		return model.Payload{}, err
	}
	self, _ := x.Self()
	m := model.Message{
		Kind: model.MessageCall, To: model.Address{Tenant: self.Tenant, Type: c.To, Key: c.Key}, Name: c.Name, Input: c.Input.Payload, OneWay: true,
	}

	for n, pause := 1, firstPause; ; n, pause = n+1, min(2*pause, maxPause) {
		if err := x.Err(); err != nil {
			return model.Payload{}, err // the delayed call was cancelled
		}

		// A cancel does not interrupt a detached Send. Otherwise the execution could end as
		// cancelled although the mailbox has stored the call.
		_, err := x.Detached().Send(m, strconv.Itoa(n), nil)
		if !isFull(err) {
			return model.Payload{}, err
		}

		if n == maxAttempts {
			// A new run keeps the history short.
			return model.Payload{}, &replay.Continue{Workflow: Type, Input: p}
		}

		if err := x.Sleep(pause); err != nil {
			return model.Payload{}, err
		}
	}
}

// isFull reports whether the mailbox has refused a call because it has no room.
func isFull(err error) bool {
	var f *model.Failure
	return errors.As(err, &f) && f.Kind == fault.Exhausted.String()
}

// Host is an engine in this process. It gives work of every tenant to workers that run code of
// Perdure itself.
type Host interface {
	// JoinBuiltIn adds a worker that runs the workflows for every tenant.
	JoinBuiltIn(ctx context.Context, w api.Worker, workflows ...string) (api.Session, error)
}

// ServeAll makes the delayed calls of every tenant until the caller calls stop. A server uses it,
// so that the calls are made even if no app of their tenant is connected.
func ServeAll(ctx context.Context, h Host, log *slog.Logger) (stop func(), err error) {
	w := replay.NewWorker(replay.Config{Code: map[string]replay.Code{Type: Code}, Retain: map[string]time.Duration{Type: Retention}, Logger: log})
	session, err := h.JoinBuiltIn(ctx, w, Type)
	if err != nil {
		return nil, err
	}
	w.Serve(session)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = w.Close(ctx) // another process continues its executions
	}, nil
}
