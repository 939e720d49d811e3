package perdure

import (
	"context"
	"errors"
	"time"
)

// App is an open node or a connection to one.
type App struct{}

// Dial connects to a server; with definitions it is also a worker.
func Dial(ctx context.Context, url string, defs ...Definition) (*App, error) { return &App{}, nil }

// With is the app in the name of ctx: the Caller of ordinary code.
func (a *App) With(ctx context.Context) Client { return Client{} }

// Wait blocks until ctx ends, then drains.
func (a *App) Wait(ctx context.Context) error { return nil }

// Close drains and releases.
func (a *App) Close() error { return nil }

// Client is an App together with the context of the call.
type Client struct{ a *App }

func (Client) sender() {}
func (Client) caller() {}

// Errors of waits.
var (
	ErrCanceled = errors.New("canceled")
	ErrTimeout  = errors.New("timeout")
)

// Permanent marks an error that is not retried.
func Permanent(err error) error { return err }

// RetryAfter asks for the next attempt at a given distance.
func RetryAfter(err error, d time.Duration) error { return err }

// RemoteError is an error that crossed a process or a journal.
type RemoteError struct{ Kind, Type, Message string }

func (e *RemoteError) Error() string { return e.Message }
