package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
)

func serverError(severity, code string) *pgconn.PgError {
	return &pgconn.PgError{Severity: severity, SeverityUnlocalized: severity, Code: code, Message: "no"}
}

// The table has every class of SQLSTATE that classOf names, and some others.
func TestClasses(t *testing.T) {
	t.Parallel()
	const retryable, unknown, refused, away = store.Retryable, store.Unknown, store.Refused, store.Away

	for code, want := range map[string]store.Class{
		// "cached plan must not change result type": a new connection prepares the statement again
		"0A000": retryable,
		"08000": unknown, "08003": unknown, "08006": unknown, "08P01": unknown,
		// the same row twice
		"21000": refused,
		// too long, out of range, division by zero, not UTF-8
		"22001": refused, "22003": refused, "22012": refused, "22021": refused,
		"22P02": refused, "22P03": refused, "23502": refused, "23505": refused, "23514": refused, "23P01": refused,
		"25006": away, "25P02": away, "25P03": away, // read-only; aborted; idle in transaction
		// A prepared statement is missing or exists already.
		"26000": retryable, "42P05": retryable,
		"27000": refused,
		"28000": away, "28P01": away, "3D000": away, "3F000": away,
		"40000": retryable, "40001": retryable, "40P01": retryable, "40003": unknown,
		// Rights, syntax, missing column, missing table: the rows are not the cause.
		"42501": away, "42601": away, "42703": away, "42P01": away,
		"44000": refused,
		// disk full, out of memory
		"53000": away, "53100": away, "53200": away, "53300": away, "53400": away,
		"54000": refused, "54001": refused, "54023": refused, // an index entry that is too large
		"55000": away, "55006": away, "55P03": retryable,
		"57000": unknown, "57014": retryable, "57P01": unknown, "57P02": unknown, "57P03": unknown, "57P04": unknown, "57P05": unknown,
		"58000": away, "58030": away,
		"72000": retryable,
		"F0000": away, "HV000": away, "P0001": refused, "P0002": refused,
		"XX000": away, "XX001": refused, "XX002": refused,
		"": away, "x": away, "ZZZZZ": away,
	} {
		if got := classOf(code); got != want {
			t.Errorf("%s is %s, want %s", code, got, want)
		}
	}
}

// Only an error of severity ERROR proves that nothing was applied.
func TestProof(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		severity, code string
		want           bool
	}{
		{"ERROR", "23505", true},
		{"ERROR", "57014", true},
		{"ERROR", "40001", true},
		{"ERROR", "53100", true},
		{"ERROR", "25006", true},
		{"ERROR", "57P01", false},
		{"ERROR", "08006", false},
		{"ERROR", "40003", false},
		{"FATAL", "57P01", false},
		{"FATAL", "23505", false},
		{"FATAL", "57014", false},
		{"FATAL", "40001", false},
		{"PANIC", "53100", false},
		{"", "23505", false},
	} {
		if got := (&failure{PgError: serverError(c.severity, c.code)}).provesAbort(); got != c.want {
			t.Errorf("%s %s proves %v, want %v", c.severity, c.code, got, c.want)
		}
	}

	localized := serverError("ERROR", "23505")
	localized.Severity = "FEHLER"
	if !(&failure{PgError: localized}).provesAbort() {
		t.Error("the severity in the language of the server was believed")
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	all := prepare(`"perdure"`)

	for _, c := range []struct {
		name      string
		statement int // -1: at the commit
		code      string
		want      store.Class
		text      string
	}{
		{"the fence raises", stFence, "22P02", store.Fenced, "no longer the owner"},
		{"a guard raises", stTimer, "22P02", store.Refused, `"perdure".timers`},
		{"a value of the fence is out of range", stFence, "22003", store.Refused, `"perdure".fences`},
		{"at the commit", -1, "40001", store.Retryable, "SQLSTATE 40001"},
		{"division by zero at the commit", -1, "22012", store.Refused, "SQLSTATE 22012"},
		{"pooler", stEvent, "26000", store.Retryable, "prepare=off"},
		{"no tables", stEvent, "42P01", store.Away, "perdure migrate"},
	} {
		f := &failure{PgError: serverError("ERROR", c.code)}
		if c.statement >= 0 {
			f.statement = &all[c.statement]
		}

		if got := f.class(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if text := f.explain(`"perdure"`).Error(); !strings.Contains(text, c.text) {
			t.Errorf("%s: %q does not say %q", c.name, text, c.text)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	cause := errors.New("the caller gave up")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(cause)

	for _, c := range []struct {
		name        string
		err         error
		write, read store.Class
	}{
		{"connection", io.ErrUnexpectedEOF, store.Unknown, store.Away},
		{"closed", fmt.Errorf("wrapped: %w", pgconn.ErrConnClosed), store.Unknown, store.Away},
		{"shutdown", serverError("FATAL", "57P01"), store.Unknown, store.Away},
		{"session ended in the middle", serverError("ERROR", "57P01"), store.Unknown, store.Away},
		{"deadlock", serverError("ERROR", "40P01"), store.Retryable, store.Away},
		{"timeout", serverError("ERROR", "57014"), store.Retryable, store.Away},
		{"constraint", serverError("ERROR", "23505"), store.Refused, store.Refused},
		{"read-only", serverError("ERROR", "25006"), store.Away, store.Away},
		{"ours already", fencedError("x"), store.Fenced, store.Fenced},
	} {
		if got := store.ClassOf(classify(t.Context(), "x", true, c.err)); got != c.write {
			t.Errorf("%s, writing: %s, want %s", c.name, got, c.write)
		}
		if got := store.ClassOf(classify(t.Context(), "x", false, c.err)); got != c.read {
			t.Errorf("%s, reading: %s, want %s", c.name, got, c.read)
		}
	}

	if err := classify(cancelled, "x", true, io.EOF); !errors.Is(err, cause) || store.ClassOf(err) != store.Unknown {
		t.Errorf("the cause of a cancelled call is lost: %v", err)
	}
	if err := classify(t.Context(), "x", false, fault.New(fault.Corrupt, "row")); fault.KindOf(err) != fault.Corrupt {
		t.Errorf("a corrupt row is %s", fault.KindOf(err))
	}
	if classify(t.Context(), "x", true, nil) != nil {
		t.Error("nil became an error")
	}
}

// Every answer of a server has a valid class, and only an ERROR proves that nothing was applied.
func FuzzClassify(f *testing.F) {
	for _, seed := range []string{"40001", "57P01", "22012", "08006", "", "é", "00000"} {
		f.Add("ERROR", seed, 0)
		f.Add("FATAL", seed, 3)
	}

	all := prepare(`"perdure"`)
	f.Fuzz(func(t *testing.T, severity, code string, statement int) {
		fail := &failure{PgError: serverError(severity, code)}
		if statement >= 0 && statement < len(all) {
			fail.statement = &all[statement]
		}
		class := fail.class()
		if class < store.Retryable || class > store.Away {
			t.Fatalf("%q is class %d", code, class)
		}

		if fail.provesAbort() && (severity != "ERROR" || class == store.Unknown) {
			t.Fatalf("%s %q proves something", severity, code)
		}
		if fail.explain(`"perdure"`).Error() == "" {
			t.Fatal("an error without a text")
		}
		if got := store.ClassOf(classify(context.Background(), "x", true, fail.PgError)); severity != "ERROR" && got != store.Unknown {
			t.Fatalf("%s %q of a write is %s", severity, code, got)
		}

		if got := store.ClassOf(classify(context.Background(), "x", false, fail.PgError)); got == store.Unknown {
			t.Fatalf("a read is %s", got)
		}
	})
}
