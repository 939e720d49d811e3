package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// refused runs serve and returns its exit code and its complaint on one line.
func refused(ctx context.Context, change func(*options), args ...string) (code int, complaint string) {
	var err bytes.Buffer
	o := &options{Streams: Streams{In: strings.NewReader(""), Out: io.Discard, Err: &err}, connectInside: openStore, machine: thisMachine()}
	o.connect = o.connectIn
	if change != nil {
		change(o)
	}
	// Use no deadline, because the server would try until the deadline to reach a database that it
	// cannot use.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(5*time.Minute, cancel).Stop()
	code = o.run(ctx, append([]string{"serve"}, args...))
	return code, strings.Join(strings.Fields(err.String()), " ")
}

// shifted is a store whose clock is wrong, or that answers late.
type shifted struct {
	store.Store

	by, late time.Duration
}

// Members returns the view with another time.
func (s shifted) Members(ctx context.Context) (store.View, error) {
	time.Sleep(s.late)
	v, err := s.Store.Members(ctx)
	v.Now = v.Now.Add(s.by)
	return v, err
}

// Every kind of server refuses to start if it may have too few files open. A server with the Flovyn
// contract refuses the same wrong settings as another server, and wrong settings of the contract.
func TestServeRefusesMachine(t *testing.T) { //nolint:paralleltest // it sets the environment
	key := writeFile(t, t.TempDir(), "key", serveKey)
	few := func(o *options) { o.machine.openFiles = func() (uint64, bool) { return 1024, true } }
	unknown := func(o *options) { o.machine.openFiles = func() (uint64, bool) { return 0, false } }

	for _, c := range []struct {
		want   string
		change func(*options)
		env    map[string]string
		args   []string
	}{
		{"may have 1024 files and connections open, must be >= 4096 (raise the limit", few, nil, nil},
		{"--listen is", few, nil, []string{"--listen", "x"}},
		{"has no policy", unknown, nil, []string{"--policies", writeFile(t, t.TempDir(), "a.cedar", "")}},
		{"may have 1024 files", few, nil, []string{"--flovyn-contract"}},
		{"authentication is off, and --production is set", nil, map[string]string{"FLOVYN_SECURITY_ENABLED": "false"}, []string{"--flovyn-contract", "--production"}},
		{"signatures of tokens are not verified, and --production is set", nil, map[string]string{"JWT_SKIP_SIGNATURE_VERIFICATION": "true"}, []string{"--flovyn-contract", "--production"}},
		{"the admin key has 5 bytes, must be >= 16", nil, map[string]string{"PERDURE_ADMIN_KEY": "short"}, []string{"--flovyn-contract"}},
		{"has no policy", nil, nil, []string{"--flovyn-contract", "--policies", writeFile(t, t.TempDir(), "b.cedar", "")}},
		{"--log-format is", nil, nil, []string{"--flovyn-contract", "--log-format", "xml"}},
		{"serve needs that of a store", nil, map[string]string{"DATABASE_URL": "grpc://127.0.0.1:1"}, []string{"--flovyn-contract"}},
		{"tokens need an audience", nil, nil, []string{"--flovyn-contract", "--jwt-keys", key, "--jwt-issuer", "i"}},
		{`$SERVER_PORT is "x", must be a port`, nil, map[string]string{"SERVER_PORT": "x"}, []string{"--flovyn-contract"}},
	} {
		t.Run(c.want, func(t *testing.T) { //nolint:paralleltest // it sets the environment
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			code, complaint := refused(t.Context(), c.change, append([]string{"--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", key}, c.args...)...)
			if code != exitRefused || !strings.Contains(complaint, c.want) {
				t.Errorf("exit %d, want %d and %q:\n%s", code, exitRefused, c.want, complaint)
			}
		})
	}
}

// The memory limit of the control group becomes the limit of the Go runtime, unless the environment
// sets one.
func TestMemoryLimit(t *testing.T) { //nolint:paralleltest // the limit is that of the process
	old := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(old) })
	dir := t.TempDir()
	for text, want := range map[string]int64{"1000000000\n": 900_000_000, "max\n": math.MaxInt64, "": math.MaxInt64} {
		debug.SetMemoryLimit(math.MaxInt64)
		writeFile(t, dir, "memory.max", text)
		m := machine{memory: func() (uint64, bool) { return memoryLimit(dir) }}
		m.limitMemory(slog.New(slog.DiscardHandler))
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("memory.max is %q: the limit is %d, want %d", text, got, want)
		}
	}

	t.Setenv("GOMEMLIMIT", "1GiB")
	debug.SetMemoryLimit(math.MaxInt64)
	machine{memory: func() (uint64, bool) { return 1 << 30, true }}.limitMemory(slog.New(slog.DiscardHandler))
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("the limit is %d, although the environment has one", got)
	}
}

// A server has a floor for its heap, unless the environment sets how far the heap may grow. The
// floor is smaller in a small container.
func TestHeapFloor(t *testing.T) { //nolint:paralleltest // the collector is that of the process
	t.Setenv("GOGC", "")
	old := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(old) })
	told := func() int {
		percent := debug.SetGCPercent(100)
		debug.SetGCPercent(percent)
		return percent
	}
	small := func() (uint64, bool) { return 40 << 20, true }
	unlimited := func() (uint64, bool) { return 0, false }

	runtime.GC()
	end := machine{memory: small}.floorHeap()
	if got := told(); got > 125 { // 5 MiB
		t.Errorf("the heap of a small container may grow by %d %%", got)
	}
	end()
	t.Setenv("GOGC", "100")
	end = machine{memory: unlimited}.floorHeap()
	if got := told(); got != 100 {
		t.Errorf("the heap may grow by %d %%, although the environment says 100", got)
	}
	end()
}

// A server with a method that has no action does not start. It fails before it touches its store,
// so it creates no file and takes over no work.
func TestRefusedBuildTouchesNoStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "app.db")
	code, complaint := refused(t.Context(), func(o *options) { o.services = unlisted },
		"--store", "file:"+file, "--listen", "127.0.0.1:0", "--admin-key-file", writeFile(t, dir, "key", serveKey))
	if code != exitRefused || !strings.Contains(complaint, "has no row for /perdure.test.Unlisted/Watch") {
		t.Errorf("exit %d: %s", code, complaint)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the store exists: %v", err)
	}
}
