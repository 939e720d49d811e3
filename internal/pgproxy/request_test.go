package pgproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"
)

// feed gives messages to a session as a connection does, and returns the requests as texts.
func feed(t *testing.T, s *session, messages ...pgproto3.FrontendMessage) []string {
	t.Helper()
	var got []string
	for _, message := range messages {
		raw, err := message.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		at := len(s.buf)
		s.buf = append(s.buf, raw...)
		kind, complete, forward := s.see(at)

		switch {
		case complete:
			r := s.take(kind, at)
			words := kind.String() + ": " + strings.Join(r.SQL, " | ")
			if r.InTx {
				words += " [in tx]"
			}
			if r.Commits() {
				words += " [commits at " + string(s.buf[r.holdAt]) + "]"
			} else if r.holdAt != at {
				t.Errorf("%s: holdAt = %d, want the last message at %d", words, r.holdAt, at)
			}
			if r.continues {
				words += " [continues]"
			}
			got = append(got, words)
			s.noteForwarded()
		case forward:
			got = append(got, "forward")
			s.noteForwarded()
		}
	}

	return got
}

func query(sql string) pgproto3.FrontendMessage { return &pgproto3.Query{String: sql} }

// execute returns a statement of the extended protocol, without its Sync.
func execute(sql string) []pgproto3.FrontendMessage {
	return []pgproto3.FrontendMessage{&pgproto3.Parse{Query: sql}, &pgproto3.Bind{}, &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Execute{}}
}

func batch(statements ...string) []pgproto3.FrontendMessage {
	var messages []pgproto3.FrontendMessage
	for _, sql := range statements {
		messages = append(messages, execute(sql)...)
	}
	return append(messages, &pgproto3.Sync{})
}

func TestRequests(t *testing.T) {
	t.Parallel()
	flat := func(groups ...[]pgproto3.FrontendMessage) []pgproto3.FrontendMessage {
		var all []pgproto3.FrontendMessage
		for _, group := range groups {
			all = append(all, group...)
		}
		return all
	}
	one := func(m ...pgproto3.FrontendMessage) []pgproto3.FrontendMessage { return m }

	for name, test := range map[string]struct {
		messages []pgproto3.FrontendMessage
		want     []string
	}{
		"explicit transaction": {
			one(query("begin"), query("insert into t values (1)"), query("COMMIT")),
			[]string{"Query: begin", "Query: insert into t values (1) [in tx]", "Query: COMMIT [in tx] [commits at Q]"},
		},
		"rolled back": {
			one(query("begin"), query("delete from t"), query("rollback"), query("commit")),
			[]string{"Query: begin", "Query: delete from t [in tx]", "Query: rollback [in tx]", "Query: commit"},
		},
		"back to a savepoint": {
			one(query("begin"), query("savepoint a"), query("rollback to a"), query("ROLLBACK WORK TO SAVEPOINT a"), query("end")),
			[]string{
				"Query: begin", "Query: savepoint a [in tx]", "Query: rollback to a [in tx]",
				"Query: ROLLBACK WORK TO SAVEPOINT a [in tx]", "Query: end [in tx] [commits at Q]",
			},
		},
		"chained": {
			one(query("start transaction"), query("commit and chain"), query("rollback and no chain"), query("commit")),
			[]string{
				"Query: start transaction", "Query: commit and chain [in tx] [commits at Q]",
				"Query: rollback and no chain [in tx]", "Query: commit",
			},
		},
		"two phases": {
			one(query("begin"), query("prepare transaction 'x'"), query("commit prepared 'x'"), query("prepare s as select 1")),
			[]string{
				"Query: begin", "Query: prepare transaction 'x' [in tx] [commits at Q]",
				"Query: commit prepared 'x' [commits at Q]", "Query: prepare s as select 1",
			},
		},
		"autocommit": {
			one(query("update t set n = n + 1"), query("select 1"), query("-- ping"), query(";"), query("/* hint */ WITH x as (delete from t) select 1")),
			[]string{
				"Query: update t set n = n + 1 [commits at Q]", "Query: select 1", "Query: -- ping", "Query: ",
				"Query: /* hint */ WITH x as (delete from t) select 1 [commits at Q]",
			},
		},
		"several in one query": {
			one(query("begin; insert into t values (';'); commit"), query("insert into t values (1); rollback"), query("insert into t values (1); commit; select 1")),
			[]string{
				"Query: begin | insert into t values (';') | commit [commits at Q]",
				"Query: insert into t values (1) | rollback",
				"Query: insert into t values (1) | commit | select 1 [commits at Q]",
			},
		},
		"implicit commit at the sync of a batch": {
			batch("insert into t values ($1)", "update u set n = $1"),
			[]string{"Sync: insert into t values ($1) | update u set n = $1 [commits at S]"},
		},
		"explicit commit inside a batch": {
			batch("begin", "insert into t values ($1)", "commit"),
			[]string{"Sync: begin | insert into t values ($1) | commit [commits at E]"},
		},
		"batch inside a transaction": {
			flat(one(query("begin")), batch("insert into t values ($1)"), one(query("commit"))),
			[]string{"Query: begin", "Sync: insert into t values ($1) [in tx]", "Query: commit [in tx] [commits at Q]"},
		},
		"prepared earlier": {
			flat(
				one(&pgproto3.Parse{Name: "a", Query: "insert into t values (1)"}, &pgproto3.Parse{Name: "b", Query: "select 2"}, &pgproto3.Sync{}),
				one(&pgproto3.Bind{PreparedStatement: "b"}, &pgproto3.Execute{}, &pgproto3.Bind{DestinationPortal: "p", PreparedStatement: "a"}, &pgproto3.Execute{Portal: "p"}, &pgproto3.Sync{}),
				one(&pgproto3.Close{ObjectType: 'S', Name: "a"}, &pgproto3.Bind{PreparedStatement: "a"}, &pgproto3.Execute{}, &pgproto3.Sync{}),
			),
			[]string{"Sync: ", "Sync: select 2 | insert into t values (1) [commits at S]", "Sync: "},
		},
		"pipelined transactions": {
			flat(batch("begin"), batch("insert into t values (1)"), batch("commit"), batch("insert into t values (2)")),
			[]string{
				"Sync: begin", "Sync: insert into t values (1) [in tx]", "Sync: commit [in tx] [commits at E]",
				"Sync: insert into t values (2) [commits at S]",
			},
		},
		"flush in between": {
			flat(execute("insert into t values (1)"), one(&pgproto3.Flush{}), batch("select 1")),
			[]string{"forward", "Sync: insert into t values (1) | select 1 [commits at S]"},
		},
		"explicit commit ahead of a flush": {
			flat(batch("begin"), execute("commit"), one(&pgproto3.Flush{}, &pgproto3.Sync{})),
			[]string{"Sync: begin", "forward", "Sync: commit [in tx] [commits at S]"},
		},
		"copy in a simple query": {
			one(query("copy t from stdin"), &pgproto3.CopyData{}, &pgproto3.CopyDone{}, query("copy t to stdout"), query("copy t from '/file'")),
			[]string{"Query: copy t from stdin", "forward", "CopyDone: copy t from stdin [commits at c] [continues]", "Query: copy t to stdout", "Query: copy t from '/file' [commits at Q]"},
		},
		"copy in the extended protocol": {
			flat(batch("COPY t FROM STDIN"), one(&pgproto3.CopyData{}, &pgproto3.CopyDone{}, &pgproto3.Sync{}), batch("select 1")),
			[]string{"Sync: COPY t FROM STDIN", "forward", "Sync: COPY t FROM STDIN [commits at S] [continues]", "Sync: select 1"},
		},
		"copy that fails": {
			one(query("copy t from stdin"), &pgproto3.CopyFail{}, &pgproto3.CopyDone{}, query("copy t from stdin"), query("select 1"), &pgproto3.CopyDone{}),
			[]string{"Query: copy t from stdin", "forward", "forward", "Query: copy t from stdin", "Query: select 1", "forward"},
		},
		"fast path, password, end": {
			one(&pgproto3.PasswordMessage{Password: "x"}, &pgproto3.FunctionCall{}, &pgproto3.Terminate{}),
			[]string{"forward", "FunctionCall: fast-path function call [commits at F]", "forward"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, feed(t, newSession(), test.messages...)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][]string{
		"":                                   nil,
		" ; ;":                               nil,
		"a; b ;c":                            {"a", "b", "c"},
		`select ';', "x;y"; b`:               {`select ';', "x;y"`, "b"},
		"select 'it''s; fine'; b":            {"select 'it''s; fine'", "b"},
		`select E'it\'s; fine'; b`:           {`select E'it\'s; fine'`, "b"},
		"a -- ; no\n; b":                     {"a -- ; no", "b"},
		"a /* ; */; b":                       {"a /* ; */", "b"},
		"do $$ begin; end $$; b":             {"do $$ begin; end $$", "b"},
		"do $x$ $$ ; $$ $x$; select $1; b":   {"do $x$ $$ ; $$ $x$", "select $1", "b"},
		"select 'never closed; b":            {"select 'never closed; b"},
		"select 'a' -- never; closed":        {"select 'a' -- never; closed"},
		"select E'never closed\\'; b":        {"select E'never closed\\'; b"},
		"select a$b$c; select 1 /* never ; ": {"select a$b$c", "select 1 /* never ;"},
	} {
		if diff := cmp.Diff(want, split(sql)); diff != "" {
			t.Errorf("split(%q) (-want +got):\n%s", sql, diff)
		}
	}
}

func TestMentions(t *testing.T) {
	t.Parallel()
	r := Request{SQL: []string{"select 1", "Insert into Fence values (1)"}}
	if !Mentions("INTO fence")(r) || Mentions("into lease")(r) {
		t.Error("Mentions does not look at all statements, or not regardless of case")
	}
}

func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	read := func(raw string) error {
		_, err := appendMessage(nil, bufio.NewReader(strings.NewReader(raw)))
		return err
	}
	if err := read(""); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: %v, want EOF", err)
	}
	if err := read("Q\x00\x00"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a header: %v, want unexpected EOF", err)
	}
	if err := read("Q\x00\x00\x00\x09abc"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a body: %v, want unexpected EOF", err)
	}

	for _, raw := range []string{"Q\x00\x00\x00\x03", "GET / HTTP/1.1\r\n"} {
		if err := read(raw); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v, want a complaint about the length", raw, err)
		}
	}

	if _, _, err := appendStartup(nil, bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\n"))); err == nil {
		t.Error("HTTP was taken for PostgreSQL")
	}
}

// FuzzSession looks for messages on which the parser panics or loses bytes.
func FuzzSession(f *testing.F) {
	f.Add([]byte("P\x00\x00\x00\x08a\x00b\x00B\x00\x00\x00\x04E\x00\x00\x00\x04C\x00\x00\x00\x04S\x00\x00\x00\x04"))
	f.Add([]byte("Q\x00\x00\x00\x0ccopy a;$"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := newSession()
		r := bufio.NewReader(bytes.NewReader(raw))
		var passed []byte
		for {
			at := len(s.buf)
			buf, err := appendMessage(s.buf, r)
			if err != nil {
				break
			}
			s.buf = buf

			kind, complete, forward := s.see(at)
			if complete {
				request := s.take(kind, at)
				if request.holdAt < 0 || request.holdAt > at {
					t.Fatalf("holdAt = %d of %d", request.holdAt, at)
				}
			}

			if complete || forward {
				passed = append(passed, s.buf...)
				s.noteForwarded()
			}
		}

		if !bytes.HasPrefix(raw, passed) {
			t.Fatalf("forwarded %q of %q", passed, raw)
		}
	})
}
