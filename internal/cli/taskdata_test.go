package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/cli"
	"github.com/perdure/perdure/internal/pgtest"
)

var (
	cursor = perdure.NewState[int]("cursor")
	chat   = perdure.NewActivity("chat", func(ctx context.Context, _ string) (string, error) {
		perdure.Log(ctx).Info("asked", "n", perdure.Attempt(ctx))
		perdure.Log(ctx).Warn("it is late")
		return "", errors.Join(perdure.StreamToken(ctx, "Hello"), perdure.StreamToken(ctx, " world"), cursor.Save(ctx, 2), perdure.StreamProgress(ctx, 1, ""))
	}, perdure.OnQueue("chat"))
	talk = perdure.NewWorkflow("talk", func(ctx perdure.WorkflowCtx, in string) (string, error) { return chat.Run(ctx, in) }, perdure.Uses(chat))
)

// chatDemo creates a store with a task that has written logs, stream items and states.
func chatDemo() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	app, err := embedded.Open(ctx, os.Args[1], chat, talk)
	if err == nil {
		var x perdure.Execution[string]
		if x, err = chat.Submit(app.With(ctx), "", perdure.RawKey("a")); err == nil {
			_, err = x.Result(app.With(ctx))
		}
		if err == nil {
			_, err = talk.Run(app.With(ctx), "", perdure.RawKey("w"))
		}
		err = errors.Join(err, app.Close())
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// watched is an output that reports every line.
type watched struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	wrote func(text string)
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.buf.Write(p)
	w.wrote(string(p))
	return n, err
}

// On PostgreSQL a command follows a task of a running program, and ends when the task ends.
func TestFollowBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	said := make(chan string)

	speak := perdure.NewActivity("speak", func(ctx context.Context, _ string) (int, error) {
		for text := range said {
			perdure.Log(ctx).Info("said", "text", text)
			if err := perdure.StreamToken(ctx, text); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}, perdure.OnQueue("chat"))

	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, speak)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	if _, err := speak.Submit(app.With(t.Context()), "", perdure.RawKey("k")); err != nil {
		t.Fatal(err)
	}

	said <- "one"
	out := &watched{wrote: func(text string) {
		switch {
		case strings.Contains(text, "one"):
			said <- "two"
		case strings.Contains(text, "two"):
			close(said)
		}
	}}

	var complaints bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	code := cli.Main(ctx, []string{"task", "stream", "speak/k", "--follow", "--store", url}, cli.Streams{In: strings.NewReader(""), Out: out, Err: &complaints})
	if code != 0 || strings.Count(out.buf.String(), "\n") != 2 {
		t.Errorf("exit %d, %s%s", code, out.buf.String(), complaints.String())
	}
}
