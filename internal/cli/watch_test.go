package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/cli"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// watching is a command that prints until it is interrupted.
type watching struct {
	t     *testing.T
	args  []string
	lines chan string
	stop  context.CancelFunc
	code  chan int

	mu  sync.Mutex
	err bytes.Buffer
}

// Write keeps the error output of the command.
func (w *watching) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err.Write(p)
}

func (w *watching) complaints() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err.String()
}

func watch(t *testing.T, store string, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	w := &watching{t: t, args: args, lines: make(chan string, 1000), stop: cancel, code: make(chan int, 1)}
	out, in := io.Pipe()

	go func() {
		w.code <- cli.Main(ctx, append(args, "--store", store), cli.Streams{In: strings.NewReader(""), Out: in, Err: w})
		_ = in.Close()
	}()

	go func() {
		defer close(w.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
	}()

	return w
}

// until returns the next line that has all the words.
func (w *watching) until(words ...string) string {
	w.t.Helper()
	for line := range w.lines {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			return line
		}
	}
	w.t.Fatalf("perdure %s ended without a line with %q: %s", strings.Join(w.args, " "), words, w.complaints())
	return ""
}

// wantExit checks the exit code.
func (w *watching) wantExit(want int) {
	w.t.Helper()
	for range w.lines { // the command must not wait for a reader
		continue
	}
	if code := <-w.code; code != want {
		w.t.Errorf("perdure %s: exit %d, want %d: %s", strings.Join(w.args, " "), code, want, w.complaints())
	}
}

// openShop opens a store with the code of a shop and a queue.
func openShop(t *testing.T, cfg embedded.Config) (url string, app *perdure.App) {
	t.Helper()
	url = "file:" + filepath.Join(t.TempDir(), "shop.db")
	app, err := cfg.Open(t.Context(), url, shop, perdure.NewActivity("mail", func(_ context.Context, to string) (string, error) { return to, nil }, perdure.OnQueue("post")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})
	return url, app
}

func startShop(t *testing.T, app *perdure.App, key string) {
	t.Helper()
	if _, err := shop.Start(app.With(t.Context()), "wait", perdure.RawKey(key)); err != nil {
		t.Fatal(err)
	}
}

func finishShop(t *testing.T, app *perdure.App, key string) {
	t.Helper()
	if err := approve.Send(app.With(t.Context()), shop.Execution(perdure.RawKey(key)), true); err != nil {
		t.Fatal(err)
	}
}

// Commands watch a program that has a file open, through its socket.
func TestWatchCommands(t *testing.T) {
	t.Parallel()
	url, app := openShop(t, embedded.Config{})
	startShop(t, app, "old")
	list, lines := watch(t, url, "workflow", "list", "--watch", "--workflow", "shop"), watch(t, url, "workflow", "list", "-w", "-o", "json", "--status", "open")
	list.until("EXECUTION")
	list.until("shop/old", "running")
	lines.until(`"key":"old"`)
	feed := watch(t, url, "watch", "--class", "execution", "-o", "json", "--key", "new")
	history, description := watch(t, url, "workflow", "show", "shop/old", "--watch"), watch(t, url, "workflow", "describe", "shop/old", "--watch")
	history.until("#", "EVENT")
	description.until("Status", "running")

	// The command perdure watch prints nothing before the first change. So repeat the change until
	// the command has started to watch.
	for found := false; !found; {
		startShop(t, app, "new")
		if err := app.Executions().Terminate(t.Context(), shop.Execution(perdure.RawKey("new")), "again"); err != nil {
			t.Fatal(err)
		}
		if err := app.Executions().Delete(t.Context(), shop.Execution(perdure.RawKey("new"))); err != nil {
			t.Fatal(err)
		}

		select {
		case line := <-feed.lines:
			var v map[string]any
			if err := json.Unmarshal([]byte(line), &v); err != nil || v["class"] != "execution" || v["key"] != "new" {
				t.Errorf("%v: %q", err, line)
			}
			found = true
		case <-time.After(10 * time.Millisecond):
		}
	}

	startShop(t, app, "last")
	list.until("running", "shop/last", "waits for signal approve")
	lines.until(`"key":"last"`)
	finishShop(t, app, "old")
	finishShop(t, app, "last")
	list.until("completed", "shop/last")
	lines.until(`"key":"last"`, `"status":"completed"`) // the execution leaves the list
	history.until("closed", "completed")
	description.until("Status", "completed")
	history.wantExit(0)
	description.wantExit(0)
	for _, w := range []*watching{list, lines, feed} {
		w.stop()
		w.wantExit(0)
		if text := w.complaints(); text != "" {
			t.Errorf("perdure %s complains: %s", strings.Join(w.args, " "), text)
		}
	}
}

// Commands watch tasks and queues, also over the network.
func TestWatchTasksOverTheNetwork(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := node.Serve(ctx, node.ServerConfig{
		Listen: "127.0.0.1:0", Authenticator: authn.Open{Tenant: model.DefaultTenant}, Node: node.Config{URL: "memory:", Shards: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(ctx)) })
	url := "grpc://" + s.Addr().String()
	mail := perdure.NewActivity("mail", func(_ context.Context, to string) (string, error) { return to, nil }, perdure.OnQueue("post"))
	app, err := perdure.Dial(ctx, url, mail)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })

	tasks, queues := watch(t, url, "task", "list", "--watch", "--queue", "post"), watch(t, url, "queue", "list", "--watch")
	tasks.until("TASK", "QUEUE")
	queues.until("post")
	if err := app.Queues().Pause(ctx, "post", "stocktaking"); err != nil {
		t.Fatal(err)
	}
	queues.until("post", "paused: stocktaking")
	if _, err := mail.Submit(app.With(ctx), "ann", perdure.RawKey("m-1")); err != nil {
		t.Fatal(err)
	}
	tasks.until("running", "task:mail/m-1")
	queues.until("post", "open 1")
	if err := app.Queues().Resume(ctx, "post"); err != nil {
		t.Fatal(err)
	}
	tasks.until("completed", "task:mail/m-1")
	for _, w := range []*watching{tasks, queues} {
		w.stop()
		w.wantExit(0)
	}
}

// A command that reads a store that another process owns has no feed. It says so, and reads again
// at regular intervals.
func TestWatchWithoutFeed(t *testing.T) {
	t.Parallel()
	url, app := openShop(t, embedded.Config{NoSocket: true})
	list := watch(t, url, "workflow", "list", "--watch", "-o", "json")
	startShop(t, app, "k")
	list.until(`"key":"k"`, `"running"`)
	finishShop(t, app, "k")
	list.until(`"key":"k"`, `"completed"`)
	list.stop()
	list.wantExit(0)
	if text := list.complaints(); strings.Count(text, "reads them again every 1s") != 1 {
		t.Errorf("it says %q", text)
	}
}
