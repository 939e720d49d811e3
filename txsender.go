package perdure

import (
	"context"
	"database/sql"
	"sync"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/userdb"
)

// InTx returns a Sender inside a database/sql transaction. Its messages take effect when the
// transaction commits. If the transaction does not commit, they never take effect. A send returns
// only errors that are known before the commit. A message that the engine refuses later becomes a
// dead letter (App.DeadLetters). The database must be the database of the engine, or a database for
// which the app has an Outbox.
func (a *App) InTx(ctx context.Context, tx *sql.Tx) Sender {
	return &txSender{app: a, ctx: ctx, exec: sqlTx{tx}.Exec}
}

// InPgx returns a Sender inside a pgx transaction. It works like App.InTx.
func InPgx[G pgxTag](ctx context.Context, a *App, tx interface {
	Exec(ctx context.Context, sql string, args ...any) (G, error)
},
) Sender {
	return &txSender{app: a, ctx: ctx, dialect: userdb.PostgreSQL, exec: func(ctx context.Context, query string, args ...any) (int64, error) {
		tag, err := tx.Exec(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return tag.RowsAffected(), nil
	}}
}

// txSender sends messages as part of a transaction of ordinary code.
type txSender struct {
	app     *App
	ctx     context.Context //nolint:containedctx // a txSender belongs to one transaction
	exec    userdb.Exec
	dialect userdb.Dialect

	mu   sync.Mutex
	site *userdb.Site // the database of the transaction; nil until look has run
}

func (s *txSender) sender() outlet { return s }

// client returns a Client with the same app and context, outside the transaction.
func (s *txSender) client() Client { return Client{s.app, s.ctx} }

func (s *txSender) host() *host { return s.app.host }

func (s *txSender) open(kind, name string, p model.Payload) (model.Payload, error) {
	return s.client().open(kind, name, p)
}

func (s *txSender) start(ref Ref, in model.Payload, o *startOptions, _ replay.Normalize) (Ref, error) {
	r, err := s.client().startRequest(ref, in, o)
	if err != nil {
		return ref, err
	}
	return ref, s.put(&r)
}

func (s *txSender) send(r api.Request, _ *stepOptions) error {
	if err := s.host().sealRequest(s.ctx, brief, r); err != nil {
		return err
	}
	storeCall(r)
	return s.put(r)
}

// put writes a request into the inbox or the outbox, as part of the transaction.
func (s *txSender) put(r api.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, mailer, err := s.app.host.compose(r)
	if err != nil {
		return err
	}

	m.Trace = s.app.host.tracer.TraceOf(s.ctx)
	id := model.RunID(uuid.Must(uuid.NewV7()))
	inbox, direct := mailer.Inbox()
	if err := s.look(inbox); err != nil {
		return err
	}

	if direct && s.site.Inbox {
		if put, err := s.putInbox(&inbox, id, &m, mailer.Cluster()); put || err != nil {
			return err
		}
	}

	if !s.site.Outbox {
		return fault.WithHint(fault.New(fault.Invalid, "send %s to %s in a transaction: its database is neither the database of the engine nor a database with an outbox of this app", m.Kind, m.To),
			"pass perdure.Outbox(perdure.SQL(db)) or perdure.Outbox(perdure.Pgx(pool)) for that database to Open")
	}

	if m.RequestID == "" {
		// The relay may deliver a message of an outbox twice, so the message needs a request id. In
		// the inbox no id is needed, because the engine takes a row of its inbox only once.
		m.RequestID = id.String()
	}
	if err := s.site.Put(s.ctx, s.exec, id.String(), s.app.host.scope, &m); err != nil {
		return err
	}

	for _, r := range s.app.relays {
		r.hint()
	}
	return nil
}

// look finds out in which database the transaction is. It asks the database only once.
func (s *txSender) look(inbox api.Inbox) error {
	if s.site != nil {
		return nil
	}
	var schemas []string
	for _, r := range s.app.relays {
		schemas = append(schemas, r.db.Schema())
	}
	site, err := userdb.Find(s.ctx, s.exec, s.dialect, inbox.Here, schemas)
	if err == nil {
		s.site = &site
	}
	return err
}

// putInbox writes a message into the inbox in this database, if that inbox belongs to our engine.
// It returns false if the inbox belongs to another engine.
func (s *txSender) putInbox(inbox *api.Inbox, id model.RunID, m *model.Message, cluster string) (bool, error) {
	shard := inbox.Layout.Shard(m.To)
	kept := *m
	kept.Keep = true
	n, err := s.exec(s.ctx, inbox.Put, int64(shard), uuid.UUID(id).String(), m.To.Tenant, m.To.Type, m.To.Key, m.RequestID, model.AppendMessage(nil, &kept), cluster)
	if err != nil || n != 1 {
		return false, err
	}
	s.app.hinter.hint(shard)
	return true, nil
}
