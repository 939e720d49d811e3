// Command perdure inspects and operates Perdure stores and servers, and runs a server.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/perdure/perdure/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, os.Args[1:], cli.Standard())
	stop()
	os.Exit(code)
}
