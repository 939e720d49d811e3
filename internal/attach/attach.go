// Package attach joins an App with an engine. Packages embedded and perduretest use it, and so do
// our own tests and commands. Programs of users call embedded.Open instead.
//
// Open, Dial and Replay only call unexported functions of package perdure.
package attach

import (
	"context"
	"io"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach/seam"
)

// Config says how to join an App with an engine.
type Config = seam.Config[perdure.Definition, perdure.TaskConfig]

var constructors = seam.Get[*perdure.App, perdure.Definition, perdure.TaskConfig]()

// Open builds an App from the backend in cfg and serves the definitions. The error names every
// mistake in the definitions. If Open fails, the caller must close the backend. Otherwise App.Close
// closes it.
func Open(ctx context.Context, cfg Config, defs ...perdure.Definition) (*perdure.App, error) {
	return constructors.Open(ctx, cfg, defs...)
}

// Through replaces Open in Embed, unless Through is nil. Package dialtest sets it, before any test
// runs, to put a connection between apps and their engines.
var Through func(ctx context.Context, cfg Config, defs ...perdure.Definition) (*perdure.App, error)

// Embed does the same as Open, for an engine in this process.
func Embed(ctx context.Context, cfg Config, defs ...perdure.Definition) (*perdure.App, error) {
	if Through != nil {
		return Through(ctx, cfg, defs...)
	}
	return Open(ctx, cfg, defs...)
}

// Dial does the same as perdure.Dial, with the settings of cfg and over connections that connect
// opens. App.Close calls OnClose after it has closed the connection.
//
//arch:parameters those of perdure.Dial, and how to connect
func Dial(ctx context.Context, cfg Config, url string, connect seam.Connect, defs ...perdure.Definition) (*perdure.App, error) {
	return constructors.Dial(ctx, cfg, url, connect, defs...)
}

// Replay runs the code of the definitions against a history, with the payload settings and the
// logger of cfg. See perdure.Replay.
func Replay(ctx context.Context, cfg Config, history io.Reader, defs ...perdure.Definition) error {
	return constructors.Replay(ctx, cfg, history, defs...)
}
