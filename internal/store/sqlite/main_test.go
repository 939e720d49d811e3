package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// childEnv is an environment variable that makes the test binary act as another process. Its value
// has the name of the part that the process plays, and a path.
const childEnv = "PERDURE_SQLITE_CHILD"

func TestMain(m *testing.M) {
	if part, path, ok := strings.Cut(os.Getenv(childEnv), ":"); ok {
		os.Exit(child(part, path))
	}
	goleak.VerifyTestMain(m)
}

// child is the other process.
func child(part, path string) int {
	ctx := context.Background()
	s, err := Open(ctx, Config{Path: path, ReadOnly: part == "read"})
	if err != nil {
		fmt.Println(fault.KindOf(err), err)
		return 1
	}

	switch part {
	case "commit":
		return childCommits(ctx, s)
	case "read":
		page, err := s.List(ctx, store.Query{Tenant: model.DefaultTenant, Limit: 10})
		_, refused := s.Register(ctx, store.NodeInfo{}, 1, time.Hour)
		fmt.Println(len(page.Executions), err, fault.KindOf(refused))
	case "open":
		fmt.Println("open")
	}

	if err := s.Close(); err != nil {
		fmt.Println(err)
		return 1
	}

	return 0
}

// childRun is the run that the child writes to.
var childRun = store.RunKey{Shard: 1, Run: model.RunID{1}}

// childCommits commits events 1, 2, 3, … and prints the number of each event, until the process is
// killed. Each batch writes two rows.
func childCommits(ctx context.Context, s *Store) int {
	for n := int64(1); ; n++ {
		if n == 1 {
			last, err := s.LoadEvents(ctx, childRun, 0, 1<<30, 1<<30)
			if err != nil {
				fmt.Println(err)
				return 1
			}
			n += int64(len(last)) / 2
			fmt.Println("ready")
		}

		node := model.NodeID{byte(n), byte(n >> 8), byte(n >> 16), 1}
		r, err := s.Register(ctx, store.NodeInfo{ID: node}, 1, time.Hour)
		if err == nil {
			_, err = s.Commit(ctx, &store.Batch{Lane: store.LaneRef{Node: node, Epoch: r.Epoch}, Number: 1, Events: []store.EventRow{
				{RunKey: childRun, Event: model.Event{Seq: 2*n - 1, At: 1, Kind: model.EventSent, Name: strings.Repeat("x", 3000)}},
				{RunKey: childRun, Event: model.Event{Seq: 2 * n, At: 1, Kind: model.EventSent}},
			}})
		}

		if err == nil {
			err = s.Unregister(ctx, node, r.Epoch)
		}

		if err != nil {
			fmt.Println(err)
			return 1
		}

		fmt.Println(n)
	}
}

// startChild runs the test binary as another process and returns its output, line by line.
func startChild(t *testing.T, part, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+part+":"+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// askChild runs another process to its end and returns its output.
func askChild(t *testing.T, part, path string) string {
	t.Helper()
	cmd, lines := startChild(t, part, path)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
	}
	_ = cmd.Wait() // only the output of the process matters
	return strings.Join(said, "\n")
}

// openTest opens a store and closes it when the test ends.
func openTest(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// sequential skips a test in short mode, which is used with the race detector. Tests in which
// nothing is concurrent call it. The race detector finds nothing in such a test, and SQLite is many
// times slower with the detector. The package also runs in full without the detector, and `make
// test` runs everything with it.
func sequential(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("nothing in it is concurrent")
	}
}

// closeTest closes a store.
func closeTest(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// wantKind fails the test unless err has the kind and contains all the words.
func wantKind(t testing.TB, err error, kind fault.Kind, words ...string) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("kind %v, want %v: %v", fault.KindOf(err), kind, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// wantClass fails the test unless err has the class.
func wantClass(t testing.TB, err error, class store.Class) {
	t.Helper()
	if err == nil || store.ClassOf(err) != class {
		t.Fatalf("class %v, want %v: %v", store.ClassOf(err), class, err)
	}
}

// onWriter runs f with the writing connection, outside the normal calls of the store.
func onWriter(t testing.TB, s *Store, f func(w *writer)) {
	t.Helper()
	w := <-s.writer
	defer func() { s.writer <- w }()
	f(w)
}

// tamper changes stored rows behind the back of the store.
func tamper(t testing.TB, s *Store, sql string) {
	t.Helper()
	onWriter(t, s, func(w *writer) {
		if err := w.db.Exec(sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	})
}
