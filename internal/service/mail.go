package service

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var _ api.Mailer = (*Service)(nil)

// Cluster returns the id of the store.
func (s *Service) Cluster() string { return s.store.Info().Cluster }

// Search finds every stored value that contains a text. It sees the store at one point in time.
func (s *Service) Search(ctx context.Context, text string, found func(value []byte) error) error {
	searcher, ok := s.store.(store.Searcher)
	if !ok {
		return fault.New(fault.Internal, "the store cannot be searched")
	}
	return searcher.Search(ctx, text, found)
}

// Compose returns the message of a request.
func (s *Service) Compose(r api.Request) (model.Message, error) {
	return s.limits.Compose(r)
}

// Reach returns nil if the engine serves requests and its store answers.
func (s *Service) Reach(ctx context.Context) error {
	if s.engine == nil {
		return fault.New(fault.Unavailable, "the store is open for reading only")
	}
	return s.engine.Reach(ctx)
}

// RequestRetention returns how long request ids are kept.
func (s *Service) RequestRetention() time.Duration {
	if s.engine == nil {
		return 0
	}
	return s.engine.RequestRetention()
}

// Deliver sends a composed message.
func (s *Service) Deliver(ctx context.Context, m *model.Message) error {
	switch m.Kind {
	case model.MessageStart, model.MessageSignal, model.MessageSettle, model.MessageCancel, model.MessageCall:
	default:
		return fault.New(fault.Invalid, "a client does not send %s", m.Kind)
	}

	v := s.check(m.Kind.String())
	v.Address(m.To)
	if with := core.Overreach(m, core.SenderClient); with != "" {
		v.Wrong("a client does not send it %s", with)
	}
	v.Payload("input", m.Input)
	for i := range m.With {
		v.Payload("signal "+m.With[i].Name, m.With[i].Input)
	}
	if err := v.Err(); err != nil {
		return err
	}

	send := s.send
	if m.Kind == model.MessageStart {
		send = s.sendStart
	}
	_, err := send(ctx, m)

	return err
}

// inboxStore is a store whose inbox accepts requests from any transaction in its database.
type inboxStore interface {
	TransactionInbox() (here, put string)
}

// Inbox returns the inbox of the store, if it has one.
func (s *Service) Inbox() (api.Inbox, bool) {
	st, ok := s.store.(inboxStore)
	if !ok || s.engine == nil {
		return api.Inbox{}, false
	}
	here, put := st.TransactionInbox()
	return api.Inbox{Here: here, Put: put, Layout: s.store.Info().Layout()}, true
}

// Hint wakes the owner of a shard.
func (s *Service) Hint(shard model.ShardID) {
	if s.engine != nil {
		s.engine.MailHint(shard)
	}
}

// DeadLetters returns the refused and unreadable messages of a tenant that the inbox keeps. Every
// tenant also sees the rows whose tenant cannot be read. Only the shards of such rows are known, so
// without this rule no operator would learn about these rows.
func (s *Service) DeadLetters(ctx context.Context, tenant string, after model.RunID, limit int) ([]api.DeadLetter, error) {
	if err := s.checkTenant("dead letters", tenant); err != nil {
		return nil, err
	}
	limit = pageSize(limit)

	letters := make([]api.DeadLetter, 0, limit)
	for {
		rows, err := s.store.LoadDeadLetters(ctx, after, limit)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			after = rows[i].ID
			if of := rows[i].Message.To.Tenant; (of == tenant || of == "") && len(letters) < limit {
				letters = append(letters, letterOf(&rows[i]))
			}
		}
		if len(rows) < limit || len(letters) == limit {
			return letters, nil
		}
	}
}

func letterOf(row *store.InboxRow) api.DeadLetter {
	l := api.DeadLetter{ID: row.ID, Message: row.Message, Reason: row.Message.ID}
	if d := row.Damaged; d != nil {
		l.Unreadable, l.Reason = true, d.Why
	} else if row.Message.Kind == model.MessageNothing {
		l.Unreadable = true
	}
	return l
}
