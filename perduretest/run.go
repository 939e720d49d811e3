package perduretest

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/payload"
)

// Config has the settings of a test. The zero value is right for most tests.
type Config struct {
	// The definitions in Instead replace the definitions of the same name. Use them to put test
	// doubles into a group that the program defines as a whole.
	Instead perdure.Group
	// Patience is how much virtual time may pass before the test fails. The default is 20 years.
	Patience time.Duration
	// Once executes code once, and keeps executions in memory while they wait, as in production.
	// Without Once, the package executes code twice to check that it is deterministic. Once makes
	// tests with histories of thousands of events faster.
	Once bool
	// Logger receives the lines that executions log, and messages for operators. Without a Logger,
	// the lines of executions appear in the output of the test.
	Logger *slog.Logger
	// MaxPayload is the maximum size in bytes of an input or output. The default is 2 MiB.
	MaxPayload int
	// Payloads says how the engine stores inputs, outputs and messages, and how the payloads of
	// replayed histories are stored. The default is plain JSON.
	Payloads payload.Codec
}

// Run runs a test with the definitions, on its own store. A Group is one definition.
func Run(t *testing.T, def perdure.Definition, test func(t *testing.T, env *Env)) {
	t.Helper()
	Config{}.Run(t, def, test)
}

// Run runs a test with these settings.
func (c Config) Run(t *testing.T, def perdure.Definition, test func(t *testing.T, env *Env)) {
	t.Helper()
	c.Patience = cmp.Or(c.Patience, 20*365*24*time.Hour)
	bubble(t, func(t *testing.T) { c.run(t, t, def, test) })
}

// run does the work of Run inside the bubble. It reports mistakes to tb.
func (c Config) run(t *testing.T, tb testing.TB, def perdure.Definition, test func(t *testing.T, env *Env)) {
	w := newWorld(c)
	w.log = cmp.Or(c.Logger, slog.New(slog.NewTextHandler(tb.Output(), nil)))
	w.found = func(text string) { tb.Errorf("perduretest: %s", text) }
	env := &Env{w: w, fatal: func(err error) { tb.Fatalf("perduretest: %v", err) }}

	defer func() {
		if tb.Failed() {
			tb.Logf("%s", w.report())
		}
		if err := w.close(); err != nil {
			tb.Errorf("perduretest: close: %v", err)
		}
	}()

	if err := w.open(def); err != nil {
		tb.Fatalf("perduretest: %v", err)
	}
	test(t, env)
}

// bubble runs a test in virtual time. The test fails if it leaves goroutines behind.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	defer leftBehind(t)
	defer watch(t.Name(), realPatience, os.Stderr).Stop()
	synctest.Test(t, test)
}

// leftBehind turns the panic of synctest about goroutines that can never end into a failure. It
// does not catch a panic of the test itself.
func leftBehind(t testing.TB) {
	switch p := recover(); {
	case p == nil:
	case strings.Contains(fmt.Sprint(p), "all goroutines in bubble are blocked"):
		t.Errorf("perduretest: the test itself waits for something that can never happen: use env.With() or env.Context(), which end when nothing can happen any more: %v", p)
	default:
		t.Errorf("perduretest: the test has ended, but goroutines that it started have not, and nothing can end them: %v", p)
	}
}

// stuck is the error that ends the waits of a test after Config.Patience.
type stuck struct{ patience time.Duration }

func (s stuck) Error() string {
	return fmt.Sprintf("%s of virtual time have passed, and the test still waits (Config.Patience)", s.patience)
}
