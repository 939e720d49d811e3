package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

const (
	// devPoll is the pause between two sessions of a watch, or between two reads without a feed.
	devPoll = 500 * time.Millisecond
	// devPatience is how long the last read may take.
	devPatience = 5 * time.Second
	// devDrain is how long the program, and then the calls of the server, may take when the command
	// stops.
	devDrain = 10 * time.Second
)

// serverVariable tells programs which server to dial. Commands of this CLI read it as well.
const serverVariable = "PERDURE_SERVER"

func newDev(o *options) *cobra.Command {
	var listen string
	var embedded bool
	cmd := &cobra.Command{
		Use: "dev [-- command …]", Short: "Serve a store on this machine and watch its executions",
		Long: `Serve a store to programs of this machine, without keys, and print changes of its executions. It is perdure serve for
development: it listens on loopback only.

With a program behind --, run it with $` + serverVariable + ` set and restart it when it dies: kill it to see its executions
resume. A program that opens the store itself, with embedded.Open, needs --embedded: then the command opens no port, sets
$PERDURE_STORE instead, and only watches.`,
		Annotations: map[string]string{noProfile: "yes"},
		Example:     "  perdure dev\n  perdure dev -- go run ./examples/remote/worker\n  perdure dev --embedded -- go run ./examples/hello",
		RunE: func(cmd *cobra.Command, args []string) error {
			if embedded {
				return o.watchProgram(cmd.Context(), args, "PERDURE_STORE="+o.store, o.look)
			}
			return o.dev(cmd.Context(), listen, args)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7800", "address to listen on, of this machine")
	cmd.Flags().BoolVar(&embedded, "embedded", false, "serve nothing: the program opens the store itself")
	return cmd
}

// dev serves a store on loopback while a program runs, or until the command is interrupted.
func (o *options) dev(ctx context.Context, listen string, args []string) error {
	if !isLoopback(listen) {
		return refuseStart(fault.WithHint(fault.New(fault.Invalid, "dev asks for no keys, so it listens on loopback only, and %s is not", listen), "use perdure serve"))
	}
	policies, err := readPolicies("")
	if err != nil {
		return err
	}
	cfg := node.ServerConfig{Listen: listen, Authenticator: authn.Open{Tenant: model.DefaultTenant, Choose: true}, Authorizer: policies, Tenant: model.DefaultTenant, Web: restAPI(true)}
	cfg.Node = node.Config{URL: o.store, Schema: o.schema, Databases: o.databaseURLs(), Log: o.log(), Version: Version()}
	s, unregister, err := startServer(ctx, cfg)
	if err != nil {
		return refuseStart(err)
	}

	fmt.Fprintf(o.Err, `· serving %s at %s; metrics at http://%s/metrics
· in a program:    app, err := perdure.Dial(ctx, "%s", definitions…)
· from a shell:    perdure workflow list --server %s
· over HTTP:       http://%s/v1/docs
`, o.store, serverURL(s), s.Addr(), serverURL(s), serverURL(s), s.Addr())
	here := func(context.Context) (session, error) { return running{opened{s.Node()}}, nil }
	defer unregister()
	ctx, ignore := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer ignore()

	// The program must end before the server does, because a worker reports its results before it
	// leaves.
	watched, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		defer cancel()
		select {
		case err := <-s.Failed():
			failed <- err
		case <-watched.Done():
			failed <- nil
		}
	}()
	err = o.watchProgram(watched, args, serverVariable+"="+serverURL(s), here)
	cancel()

	within, release := context.WithTimeout(context.WithoutCancel(ctx), devDrain)
	defer release()
	return errors.Join(err, <-failed, s.Close(within))
}

// running is a session on the node of a server. Closing the session does not close the node.
type running struct{ opened }

// Close does nothing.
func (running) Close() error { return nil }

// watchProgram runs a program, if there is one. It prints changes of executions until the program
// or ctx ends.
func (o *options) watchProgram(ctx context.Context, args []string, env string, look func(context.Context) (session, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	if len(args) > 0 {
		go func() { done <- o.keepRunning(ctx, args, env) }()
	}
	watched := make(chan error, 1)
	go func() { watched <- o.watch(ctx, look) }()

	select {
	case err := <-done:
		// Read once more, because the program commits its last changes before it ends.
		cancel(errProgramEnded)
		return errors.Join(err, <-watched)
	case err := <-watched:
		cancel(nil)
		if len(args) > 0 {
			err = errors.Join(err, <-done)
		}
		return err
	}
}

var errProgramEnded = errors.New("the program has ended")

// keepRunning runs the program until it exits with success. It restarts the program when it dies.
func (o *options) keepRunning(ctx context.Context, args []string, env string) error {
	for {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = devDrain
		cmd.Env = append(os.Environ(), env)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = o.In, o.Out, o.Err
		if err := cmd.Start(); err != nil {
			return fault.New(fault.Invalid, "start the program %s: %w", args[0], err)
		}

		fmt.Fprintf(o.Err, "· started %s (process %d)\n", args[0], cmd.Process.Pid)
		err := cmd.Wait()
		if how, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ctx.Err() != nil && how.Signaled() && how.Signal() == syscall.SIGKILL {
			fmt.Fprintf(o.Err, "· %s did not end within %s and was killed\n", args[0], cmd.WaitDelay)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		fmt.Fprintf(o.Err, "· %s: %v; restarting it\n", args[0], err)

		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// watch prints changes of executions until ctx ends.
func (o *options) watch(ctx context.Context, look func(context.Context) (session, error)) error {
	w := devWatch{list: o.watchList(nil, api.ListRequest{Tenant: o.tenant, Limit: 100, AllRuns: true}, 100), first: true}
	for ctx.Err() == nil {
		err := w.session(ctx, look)
		w.first = false // a new store has no old executions
		if err != nil && ctx.Err() == nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Unavailable) {
			fmt.Fprintf(o.Err, "· %v\n", err)
		}
		wait(ctx, devPoll)
	}

	// The program may have committed something just before it ended. If the store cannot be read,
	// there is nothing to add to what was printed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), devPatience)
	defer cancel()
	if n, err := look(ctx); err == nil {
		defer n.Close()
		w.list.b = n.Backend()
		_ = w.list.readAll(ctx, w.show)
	}
	return nil
}

// devWatch prints executions. It opens another session whenever one ends.
type devWatch struct {
	list  *watchedList
	first bool // the watch has read nothing yet
}

// session prints changes while a session lasts. Without a feed it reads once and returns.
func (w *devWatch) session(ctx context.Context, look func(context.Context) (session, error)) error {
	n, err := look(ctx)
	if err != nil {
		return err
	}
	defer n.Close()
	w.list.b = n.Backend()

	began := false
	r := api.WatchRequest{Tenant: w.list.req.Tenant}
	r.Classes = []model.ChangeClass{model.ClassExecution, model.ClassTask}
	err = n.Backend().Watch(ctx, r, func(p api.ChangePage) error {
		if !began || p.Gap || p.Partial {
			began = true
			if err := w.readAll(ctx); err != nil || p.Partial {
				return cmp.Or(err, errPartial)
			}
		}
		return w.list.readChanged(ctx, &p)
	})
	switch {
	case errors.Is(err, errPartial):
		return nil
	case errors.Is(err, api.ErrNoFeed):
		return w.readAll(ctx)
	}
	return err
}

func (w *devWatch) readAll(ctx context.Context) error {
	err := w.list.readAll(ctx, w.show)
	w.first = false
	return err
}

// show prints an execution. On the first read it leaves out executions that are already closed.
func (w *devWatch) show(d *api.Description) error {
	if w.first && d.Outcome.Status.Closed() {
		return nil
	}
	return w.list.print(d)
}
