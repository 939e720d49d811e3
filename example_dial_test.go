package perdure_test

import (
	"context"
	"fmt"
	"os"

	"github.com/perdure/perdure"
)

// To move a program from its own store to a server, change one line. Its definitions and calls stay
// the same.
func ExampleDial() {
	greet := perdure.NewWorkflow("greet", func(_ perdure.WorkflowCtx, name string) (string, error) { return "hello " + name, nil })
	serve := func(ctx context.Context) error {
		app, err := perdure.Dial(ctx, "grpc://127.0.0.1:7800", greet) // was embedded.Open(ctx, "file:app.db", greet)
		if err != nil {
			return err
		}
		defer app.Close()
		text, err := greet.Run(app.With(ctx), "world")
		fmt.Println(text)
		return err
	}
	_ = serve
}

// A server on another machine needs a token. The connection uses TLS.
func ExampleDialer() {
	dialer := perdure.Dialer{Token: os.Getenv("PERDURE_TOKEN"), Version: "v1.4.2", Tasks: perdure.TaskConfig{Slots: 20}}
	connect := func(ctx context.Context, defs ...perdure.Definition) (*perdure.App, error) {
		return dialer.Dial(ctx, "grpc://one.example.com:7800,two.example.com:7800", defs...)
	}
	_ = connect

	// A URL must not contain the token, because URLs end up in logs.
	_, err := dialer.Dial(context.Background(), "grpc://secret@one.example.com:7800")
	fmt.Println(err)
	// Output: the URL of the server has a user name: a URL must not contain a key; set the token separately (use grpc://host:7800, or unix:<path>)
}
