package embedded_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

var double = perdure.NewWorkflow("double", func(_ perdure.WorkflowCtx, n int) (int, error) { return 2 * n, nil })

func ExampleOpen() {
	app, err := embedded.Open(context.Background(), "memory:", double)
	if err != nil {
		panic(err)
	}
	defer app.Close()
	fmt.Println(double.Run(app.With(context.Background()), 21))
	// Output: 42 <nil>
}

// Settings that are zero have their default values.
func ExampleConfig() {
	app, err := embedded.Config{
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		MaxPayload:   64 << 10,
		IdleAfter:    time.Second,
		DrainTimeout: 30 * time.Second,
		Version:      "2026-11-15",
	}.Open(context.Background(), "memory:", double)
	if err != nil {
		panic(err)
	}
	defer app.Close()
	fmt.Println(double.Run(app.With(context.Background()), 21))
	// Output: 42 <nil>
}

// The environment names the store, so the same program runs on a file on your machine and on
// PostgreSQL elsewhere.
func ExampleMustOpen() {
	url := os.Getenv("APP_STORE")
	if url == "" {
		url = "memory:"
	}
	app := embedded.MustOpen(url, double)
	defer app.Close()
	fmt.Println(double.Run(app.With(context.Background()), 1))
	// Output: 2 <nil>
}

// This program can be checked before a deploy: `perdure deploy-check -- ./program` replays stored
// histories with its code. If a user starts it in any other way, it runs as usual.
func ExampleAnswerDeployCheck() {
	greet := perdure.NewWorkflow("greet", func(_ perdure.WorkflowCtx, name string) (string, error) { return "hello " + name, nil })
	embedded.AnswerDeployCheck(greet)

	app := embedded.MustOpen("memory:", greet)
	defer app.Close()
	fmt.Println(greet.Run(app.With(context.Background()), "World"))
	// Output: hello World <nil>
}
