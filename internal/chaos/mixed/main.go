// Command mixed is a worker or a client of a server. TestLongMixedReleases in internal/chaos builds
// it twice: with the previous release of Perdure and with this one. So the program uses only what
// both releases have.
//
// The environment variables PERDURE_CHAOS_… say what a process does. A process prints the line "up"
// when it is connected. It ends when it gets SIGTERM. A client first finishes the rounds that it
// has started.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure"
)

func main() {
	if err := run(); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("closed")
}

// patience is how long a call of a client may take. The test decides when a call is lost, so the
// program waits much longer than the test does.
const patience = time.Hour

// setting returns the value of a variable of the process.
func setting(name string) string { return os.Getenv("PERDURE_CHAOS_" + name) }

// run connects to the server and works until the process gets SIGTERM.
func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	name := setting("NAME")
	d := perdure.Dialer{
		Token: setting("KEY"), Patience: patience, DrainTimeout: patience, Name: name,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}

	var defs perdure.Group
	isWorker := setting("ROLE") == "worker"
	if isWorker {
		defs = definitions(ledgerOf(), name)
		d.Tasks = perdure.TaskConfig{Queues: []string{queueOf(name)}}
	}
	app, err := d.Dial(ctx, setting("URL"), defs)
	if err != nil {
		return err
	}
	fmt.Println("up")
	if isWorker {
		<-ctx.Done()
	} else {
		c := client{app: app, name: name, workers: strings.Split(setting("WORKERS"), ",")}
		c.work(ctx)
	}
	return app.Close()
}
