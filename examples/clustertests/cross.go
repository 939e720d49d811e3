package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/perdure/perdure"
)

// message is a message that an entity has received.
type message struct {
	From    string    `json:"from_entity"`
	Content string    `json:"content"`
	At      time.Time `json:"timestamp"`
}

// inbox is the state of an entity that other entities send messages to.
type inbox struct {
	Messages []message `json:"messages"`
	Pings    int64     `json:"pings"`
}

// parcel is a message to another entity.
type parcel struct {
	From    string `json:"from"`
	Message string `json:"message"`
}

// cross is an entity that receives messages and pings. The HTTP routes send both. A message has the
// name of the entity that it comes from.
type cross struct {
	entity  *perdure.Entity[inbox]
	receive *perdure.Operation[parcel, perdure.Void]
	clear   *perdure.Operation[perdure.Void, perdure.Void]
	ping    *perdure.Operation[int64, int64]
}

func newCross() *cross {
	e := perdure.NewEntity[inbox]("CrossEntity", perdure.MaxIdle(idle))
	return &cross{
		entity: e,
		receive: perdure.NewOperation(e, "receive", func(_ perdure.EntityCtx, s *inbox, p parcel) (perdure.Void, error) {
			s.Messages = append(s.Messages, message{p.From, p.Message, time.Now().UTC()})
			return perdure.Void{}, nil
		}),
		clear: perdure.NewOperation(e, "clear_messages", func(_ perdure.EntityCtx, s *inbox, _ perdure.Void) (perdure.Void, error) {
			s.Messages = nil
			return perdure.Void{}, nil
		}),
		ping: perdure.NewOperation(e, "ping", func(_ perdure.EntityCtx, s *inbox, n int64) (int64, error) {
			s.Pings = n
			return n, nil
		}),
	}
}

func (s *cross) definitions() perdure.Group { return perdure.Group{s.entity} }

// deliver sends a message to an entity.
func (s *cross) deliver(n *node, r *http.Request, to string, p parcel) (unit, error) {
	_, err := persisted(n, r, target{"CrossEntity", to, "receive"}, func(c perdure.Client, id perdure.CallOption) (perdure.Void, error) {
		return s.receive.Call(c, to, p, id)
	})
	return unit{}, err
}

func (s *cross) routes(n *node, mux *http.ServeMux) {
	mux.Handle("POST /cross/{id}/send", answer(func(r *http.Request) (unit, error) {
		in, err := body[struct {
			Type    string `json:"target_type"`
			ID      string `json:"target_id"`
			Message string `json:"message"`
		}](r)
		if err == nil && in.Type != "CrossEntity" {
			err = fmt.Errorf("messages go to entities of the type CrossEntity, not %q", in.Type)
		}
		if err != nil {
			return unit{}, err
		}
		return s.deliver(n, r, in.ID, parcel{r.PathValue("id"), in.Message})
	}))

	mux.Handle("POST /cross/{id}/receive", answer(func(r *http.Request) (unit, error) {
		p, err := body[parcel](r)
		if err != nil {
			return unit{}, err
		}
		return s.deliver(n, r, r.PathValue("id"), p)
	}))

	mux.Handle("POST /cross/{id}/clear", answer(func(r *http.Request) (unit, error) {
		return query(r, func() (unit, error) {
			_, err := s.clear.Call(n.app.With(r.Context()), r.PathValue("id"), perdure.Void{})
			return unit{}, err
		})
	}))

	mux.Handle("GET /cross/{id}/messages", answer(func(r *http.Request) ([]message, error) {
		return query(r, func() ([]message, error) {
			state, _, err := s.entity.Get(n.app.With(r.Context()), r.PathValue("id"))
			return append([]message{}, state.Messages...), err
		})
	}))

	mux.Handle("POST /cross/{id}/ping-pong", answer(func(r *http.Request) (int64, error) { return s.pingPong(n, r) }))
}

// maxRounds bounds the rounds of one request. Each round makes two calls.
const maxRounds = 10_000

// pingPong calls the operation ping of the partner and of the entity itself in turn, with
// increasing numbers.
func (s *cross) pingPong(n *node, r *http.Request) (last int64, err error) {
	in, err := body[struct {
		Partner string `json:"partner_id"`
		Count   int64  `json:"count"`
	}](r)
	if err == nil && (in.Count < 0 || in.Count > maxRounds) {
		err = fmt.Errorf("count must be at least 0 and at most %d", maxRounds)
	}
	if err != nil {
		return 0, err
	}

	for range in.Count {
		for _, to := range []string{in.Partner, r.PathValue("id")} {
			last, err = persisted(n, r, target{"CrossEntity", to, "ping"}, func(c perdure.Client, id perdure.CallOption) (int64, error) {
				return s.ping.Call(c, to, last+1, id)
			})
			if err != nil {
				return 0, err
			}
		}
	}
	return last, nil
}
