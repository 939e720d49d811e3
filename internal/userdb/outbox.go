package userdb

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// OutboxMessage is a message in an outbox.
type OutboxMessage struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Execution string `json:"execution"`
	Body      string `json:"body"` // in hexadecimal
	At        int64  `json:"at"`   // milliseconds since 1970
	Error     string `json:"error"`

	// Tried is when the first attempt to deliver the message was recorded, in milliseconds since
	// 1970. It is 0 if this attempt is the first.
	Tried int64 `json:"tried"`
	Tries int   `json:"tries"` // attempts before this one
	Now   int64 `json:"now"`   // when the message was read, by the clock of the database
}

// Message decodes the message.
func (l *OutboxMessage) Message() (model.Message, error) {
	body, err := hex.DecodeString(l.Body)
	if err != nil {
		return model.Message{}, err
	}
	return model.DecodeMessage(body)
}

// Exec runs a statement in a transaction of ordinary code and returns the number of rows that it
// changed or returned.
type Exec func(ctx context.Context, query string, args ...any) (int64, error)

// Site describes the database of a transaction of ordinary code.
type Site struct {
	dialect *dialect
	schema  string
	// Inbox means that the database has the tables of an engine.
	Inbox bool
	// Outbox means that the database has an outbox.
	Outbox bool
}

// Find examines the database of a transaction in one round trip. inbox is an SQL expression that is
// true if the database has the tables of an engine. It may be empty, which means that no engine has
// tables there. Find also reports which of the schemas has an outbox. The transaction can continue
// unless Find returns an error.
func Find(ctx context.Context, exec Exec, d Dialect, inbox string, schemas []string) (Site, error) {
	if d != SQLite {
		site, err := findPostgres(ctx, exec, inbox, schemas)
		if err == nil || d == PostgreSQL {
			return site, err
		}
		found, lite := findSQLite(ctx, exec, schemas)
		if lite != nil {
			return Site{}, fault.New(fault.Unavailable, "look at the database of the transaction: %w", errors.Join(
				fmt.Errorf("as %s: %w", PostgreSQL, err), fmt.Errorf("as %s: %w", SQLite, lite)))
		}
		return found, nil
	}
	return findSQLite(ctx, exec, schemas)
}

// findPostgres runs a statement that encodes the answer in its number of rows, because with pgx,
// Exec returns nothing else. The number is the sum of two parts: 1 if there is an inbox, and 2 for
// each schema of the list up to and including the first schema with an outbox. The second part is 0
// if no schema has an outbox.
func findPostgres(ctx context.Context, exec Exec, inbox string, schemas []string) (Site, error) {
	if inbox == "" {
		inbox = "false"
	}
	place := "0"
	for i, s := range slices.Backward(schemas) {
		place = fmt.Sprintf("case when to_regclass('%s') is not null then %d else %s end", qualify(s, Outbox), i+1, place)
	}
	n, err := exec(ctx, `select 1 from generate_series(1, (case when `+inbox+` then 1 else 0 end) + 2 * (`+place+`))
where current_setting('server_version_num') is not null`)
	if err != nil {
		return Site{}, err
	}

	site := Site{dialect: &postgres, Inbox: n%2 == 1, Outbox: n >= 2}
	if site.Outbox {
		site.schema = schemas[n/2-1]
	}
	return site, nil
}

func findSQLite(ctx context.Context, exec Exec, schemas []string) (Site, error) {
	site := Site{dialect: &sqlite}
	for _, s := range schemas {
		// This statement changes nothing, and fails without harm if the table does not exist.
		_, err := exec(ctx, fill(&sqlite, s, Outbox, `update {table} set id = id where seq < 0`))
		if err == nil {
			site.schema, site.Outbox = s, true
		}
		if err == nil || isTransient(err) {
			return site, err
		}
	}
	_, err := exec(ctx, sqlite.version)
	return site, err
}

// Put stores a message in the outbox. After the transaction has committed, a relay delivers the
// message.
func (s *Site) Put(ctx context.Context, exec Exec, id, cluster string, m *model.Message) error {
	n, err := exec(ctx, fill(s.dialect, s.schema, Outbox, `insert into {table} (id, cluster, kind, execution, body) values ($1, $2, $3, $4, $5)`),
		id, cluster, m.Kind.String(), m.To.Type+"/"+m.To.Key, model.AppendMessage(nil, m))
	switch {
	case err != nil:
		return fault.New(fault.Unavailable, "put a %s into %s: %w", m.Kind, qualify(s.schema, Outbox), err)
	case n != 1:
		return fault.New(fault.Internal, "put a %s into %s: %d rows were written", m.Kind, qualify(s.schema, Outbox), n)
	}
	return nil
}

// Schema returns the schema of the tables.
func (d *Database) Schema() string { return d.src.Schema }

// DeadLetters returns the refused messages whose ids come after the given id, in the order of their
// ids.
func (d *Database) DeadLetters(ctx context.Context, cluster, after string, limit int) (letters []OutboxMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, short)
	defer cancel()
	var text string
	if err = d.read(ctx, d.sql(Outbox, d.dialect.deadLetters), []any{cluster, after, int64(limit)}, &text); err != nil {
		return nil, err
	}
	return letters, json.Unmarshal([]byte(text), &letters)
}

// Time converts milliseconds since 1970 to a time.
func Time(millis int64) time.Time { return time.UnixMilli(millis).UTC() }
