package pgproxy

import (
	"strings"
)

// Kind is the protocol message that completes a request.
type Kind int

const (
	// Query is a simple query, with one statement or several.
	Query Kind = iota
	// Sync ends a batch of the extended protocol.
	Sync
	// CopyDone ends the data of a COPY FROM STDIN.
	CopyDone
	// FunctionCall is the obsolete fast-path call.
	FunctionCall
)

// String returns the name of the protocol message.
func (k Kind) String() string {
	switch k {
	case Query:
		return "Query"
	case Sync:
		return "Sync"
	case CopyDone:
		return "CopyDone"
	case FunctionCall:
		return "FunctionCall"
	default:
		return "?"
	}
}

// Request is a group of messages that a client sends before it waits for an answer.
type Request struct {
	// Conn is the number of the connection. The proxy numbers connections from 1, in the order in
	// which they arrive.
	Conn int
	// Client has the parameters with which the connection began: user, database, application_name
	// and so on. All requests of a connection share the map, so it must not be changed.
	Client map[string]string
	// Kind is the message that completed the request.
	Kind Kind
	// SQL has the texts of the statements that are executed, in order. A simple query is split at
	// its semicolons.
	SQL []string
	// InTx says that a transaction block is open when the request begins, according to what the
	// client has sent.
	InTx bool

	commits bool
	// continues says that the request has the rows of a COPY, so its answer continues the answer to
	// the previous request.
	continues bool
	// holdAt is the offset, in the bytes of the request, of the message that commits. For a request
	// that does not commit, it is the offset of the message that completes it.
	holdAt int
}

// Commits reports whether the request makes something durable if it succeeds. Such a request has an
// explicit COMMIT or END, or a statement outside a transaction block, which commits by itself or at
// the Sync of its batch. Statements that only read or set something (SELECT, SHOW, SET and the
// like) do not count, so that a rule for the third commit does not count a ping. A SELECT that
// calls a writing function does not count either: match it by its text, see [Mentions].
func (r Request) Commits() bool { return r.commits }

// Commits matches the requests that commit. A [Rule] without Match uses it.
func Commits(r Request) bool { return r.Commits() }

// Mentions matches the requests with a statement that contains the fragment, in upper or lower
// case.
func Mentions(fragment string) func(Request) bool {
	fragment = strings.ToLower(fragment)
	return func(r Request) bool {
		for _, sql := range r.SQL {
			if strings.Contains(strings.ToLower(sql), fragment) {
				return true
			}
		}
		return false
	}
}

// session reads what a client sends on a connection, to know what a Sync will commit.
type session struct {
	statements map[string]string // prepared statement → SQL
	portals    map[string]string // portal → SQL
	inTx       bool              // a transaction block is open after everything that was sent
	copying    *copying          // the COPY FROM STDIN whose rows are being sent, if any

	buf      []byte     // messages that were not forwarded yet
	executed []executed // of the request that is being collected
}

// executed is a statement in a request.
type executed struct {
	sql    string
	at     int  // offset of its message in buf
	copied bool // it is the end of a COPY FROM STDIN
}

// copying is a COPY FROM STDIN in progress. In a simple query, a COPY commits when its rows end. In
// the extended protocol, it commits at the Sync after the rows; the server ignores the Sync that
// came with the COPY itself.
type copying struct {
	sql      string
	extended bool
}

func newSession() *session {
	return &session{statements: map[string]string{}, portals: map[string]string{}}
}

// see notes the message that starts at an offset of buf. It reports whether the message completes a
// request, and whether the proxy must forward the collected bytes immediately because the server
// waits for them.
func (s *session) see(at int) (kind Kind, complete, forward bool) {
	body := s.buf[at+5:]
	switch s.buf[at] {
	case msgParse:
		s.copying = nil // if the COPY failed, no rows follow
		name, rest := text(body)
		s.statements[name], _ = text(rest)
	case msgBind:
		portal, rest := text(body)
		name, _ := text(rest)
		s.portals[portal] = s.statements[name]
	case msgExecute:
		portal, _ := text(body)
		s.executed = append(s.executed, executed{sql: s.portals[portal], at: at})
	case msgClose:
		if len(body) > 0 {
			name, _ := text(body[1:])
			if body[0] == 'S' {
				delete(s.statements, name)
			} else {
				delete(s.portals, name)
			}
		}
	case msgDescribe:
	case msgQuery:
		s.copying = nil
		sql, _ := text(body)
		for _, one := range split(sql) {
			s.executed = append(s.executed, executed{sql: one, at: at})
		}
		return Query, true, false
	case msgSync:
		return Sync, true, false
	case msgFunctionCall:
		s.executed = append(s.executed, executed{sql: "fast-path function call", at: at})
		return FunctionCall, true, false
	case msgCopyDone:
		if s.copying == nil {
			return 0, false, true // the rows of a COPY that failed
		}
		s.executed = append(s.executed, executed{sql: s.copying.sql, at: at, copied: true})
		complete = !s.copying.extended
		s.copying = nil
		return CopyDone, complete, false
	case msgCopyFail:
		s.copying = nil
		return 0, false, true
	default: // Flush, the rows of a COPY, a password, the end
		return 0, false, true
	}

	return 0, false, false
}

// noteForwarded notes that the collected bytes have been forwarded.
func (s *session) noteForwarded() {
	s.buf = s.buf[:0]
	for i := range s.executed {
		s.executed[i].at = 0
	}
}

// take returns the request that the message at an offset of buf completes, and starts the next
// request.
func (s *session) take(kind Kind, at int) Request {
	r := Request{Kind: kind, InTx: s.inTx, holdAt: at}
	commit := func(at int) {
		if !r.commits {
			r.commits, r.holdAt = true, at
		}
	}

	writes := false // outside a transaction block
	for _, e := range s.executed {
		r.SQL = append(r.SQL, e.sql)
		words := firstWords(e.sql, 4)
		switch words[0] {
		case "begin", "start":
			s.inTx = true
		case "commit", "end", "prepare":
			switch {
			case words[0] == "prepare" && words[1] != "transaction":
				// PREPARE of a statement commits nothing
			case words[0] == "commit" && words[1] == "prepared":
				commit(e.at)
			default:
				if s.inTx || writes {
					commit(e.at)
				}
				s.inTx, writes = isChained(words), false
			}
		case "rollback", "abort":
			switch {
			case words[1] == "prepared":
				commit(e.at)
			case words[1] == "to" || words[2] == "to": // a savepoint: [work | transaction] to
			default:
				s.inTx, writes = isChained(words), false
			}
		case "copy":
			switch sql := strings.ToLower(e.sql); {
			case e.copied:
				r.continues = true
				writes = writes || !s.inTx
			case strings.Contains(sql, "to stdout"):
				// COPY TO STDOUT only reads
			case strings.Contains(sql, "from stdin"):
				s.copying = &copying{e.sql, kind == Sync}
			default:
				writes = writes || !s.inTx
			}
		default:
			writes = writes || !s.inTx && !passive[words[0]]
		}
	}

	if writes {
		commit(at)
	}
	s.executed = s.executed[:0]
	return r
}

// passive are the statements that leave nothing durable behind.
var passive = map[string]bool{
	"": true, "close": true, "deallocate": true, "declare": true, "discard": true, "explain": true,
	"fetch": true, "listen": true, "load": true, "lock": true, "move": true, "notify": true, "release": true,
	"reset": true, "savepoint": true, "select": true, "set": true, "show": true, "table": true, "unlisten": true,
	"values": true,
}

// isChained reports whether COMMIT or ROLLBACK opens the next transaction block: [work |
// transaction] and chain.
func isChained(words []string) bool {
	for i, word := range words[:len(words)-1] {
		if word == "and" {
			return words[i+1] == "chain"
		}
	}
	return false
}

// firstWords returns the first n words of a statement in lower case, without comments. Missing
// words are "".
func firstWords(sql string, n int) []string {
	words := make([]string, 0, n)
	for i := 0; i < len(sql) && len(words) < n; {
		if next := skip(sql, i); next > i && (sql[i] == '-' || sql[i] == '/') {
			i = next // a comment
			continue
		}

		if !letter(sql[i]) {
			if len(words) == 0 && !space(sql[i]) && sql[i] != '(' {
				break // an operator or a literal where a keyword should be
			}
			i++
			continue
		}

		begin := i
		for i < len(sql) && (letter(sql[i]) || sql[i] >= '0' && sql[i] <= '9') {
			i++
		}
		words = append(words, strings.ToLower(sql[begin:i]))
	}

	return append(words, make([]string, n-len(words))...)
}

// split cuts the text of a simple query into statements, at the semicolons that are not quoted.
func split(sql string) []string {
	var statements []string
	add := func(statement string) {
		if statement = strings.TrimSpace(statement); statement != "" {
			statements = append(statements, statement)
		}
	}

	begin := 0
	for i := 0; i < len(sql); {
		if next := skip(sql, i); next > i {
			i = next
			continue
		}
		if sql[i] == ';' {
			add(sql[begin:i])
			begin = i + 1
		}
		i++
	}

	add(sql[begin:])
	return statements
}

// skip returns the end of the quoted text or comment that begins at i, or i if none does.
func skip(sql string, i int) int {
	rest := sql[i:]
	until := func(from int, end string) int {
		if at := strings.Index(rest[from:], end); at >= 0 {
			return i + from + at + len(end)
		}
		return len(sql)
	}

	switch {
	case rest[0] == '\'' || rest[0] == '"':
		// A doubled quote is treated as the end of one literal and the start of the next, which
		// gives the same result. A backslash escapes only in E'…'.
		if rest[0] == '\'' && i > 0 && (sql[i-1] == 'E' || sql[i-1] == 'e') {
			for at := 1; at < len(rest); at++ {
				switch rest[at] {
				case '\\':
					at++
				case '\'':
					return i + at + 1
				}
			}
			return len(sql)
		}
		return until(1, rest[:1])
	case strings.HasPrefix(rest, "--"):
		return until(2, "\n")
	case strings.HasPrefix(rest, "/*"):
		return until(2, "*/")
	case rest[0] == '$' && (i == 0 || !letter(sql[i-1])):
		end := 1
		for end < len(rest) && (letter(rest[end]) || end > 1 && rest[end] >= '0' && rest[end] <= '9') {
			end++
		}
		if end < len(rest) && rest[end] == '$' {
			return until(end+1, rest[:end+1])
		}
	}

	return i
}

func letter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' }
func space(b byte) bool  { return b == ' ' || b == '\t' || b == '\n' || b == '\r' || b == '\f' }
