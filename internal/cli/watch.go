package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

const (
	// watchEvery is the pause between two reads of a command that cannot use the feed.
	watchEvery = time.Second
	// watchRest is how long a command that reads a whole list waits before it reads the list again.
	watchRest = 250 * time.Millisecond
)

// watchFlag adds the flag --watch to a command. --follow is another name of it.
func watchFlag(cmd *cobra.Command, watch *bool, what string) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, what)
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "follow" {
			name = "watch"
		}
		return pflag.NormalizedName(name)
	})
}

var (
	errWatched = errors.New("there is nothing left to watch")
	errPartial = errors.New("other processes own executions")
)

// follow calls look whenever something may have changed, until the command is interrupted or look
// returns errWatched. page has the changes. It is nil in the first call, and whenever look must
// read everything.
//
// The feed of the engine says when to look. While the feed lacks changes, follow also looks at
// regular intervals. A command that reads the store itself, while another process owns it, has no
// feed. Such a command only looks at regular intervals.
func (o *options) follow(ctx context.Context, b api.Backend, r api.WatchRequest, look func(page *api.ChangePage) error) error {
	r.Tenant = o.tenant
	err := (&followed{o: o, look: look}).run(ctx, b, r)
	if errors.Is(err, api.ErrNoFeed) {
		fmt.Fprintf(o.Err, "This process does not own the executions, so it reads them again every %s.\n", watchEvery)
		err = poll(ctx, look)
	}
	if ctx.Err() != nil || errors.Is(err, errWatched) {
		return nil // the user interrupted the command, or there is nothing left to watch
	}
	return err
}

// followed is a feed that a command follows.
type followed struct {
	o              *options
	look           func(page *api.ChangePage) error
	began, partial bool
}

// run takes pages until the feed ends or look returns an error.
func (f *followed) run(ctx context.Context, b api.Backend, r api.WatchRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	pages, ended := make(chan api.ChangePage), make(chan error, 1)
	go func() {
		ended <- b.Watch(ctx, r, func(p api.ChangePage) error {
			select {
			case pages <- p:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		close(ended)
	}()
	defer func() {
		cancel()
		for range ended { // the watch must not outlive the command
			continue
		}
	}()

	every := time.NewTicker(watchEvery)
	defer every.Stop()
	for {
		var err error
		select {
		case p := <-pages:
			err = f.take(&p)
		case <-every.C:
			if f.partial {
				err = f.look(nil)
			}
		case err := <-ended:
			return err
		}
		if err != nil {
			return err
		}
	}
}

// take takes a page.
func (f *followed) take(p *api.ChangePage) error {
	switch {
	case p.Partial && !f.partial:
		fmt.Fprintf(f.o.Err, "The server does not get all changes of the other servers, so the executions are read again every %s.\n", watchEvery)
	case f.partial && !p.Partial:
		fmt.Fprintln(f.o.Err, "The server gets all changes again.")
	case p.Gap && f.began:
		fmt.Fprintln(f.o.Err, "Changes were missed: reading everything again.")
	}

	if !f.began || p.Gap || f.partial != p.Partial {
		f.began, f.partial = true, p.Partial
		if err := f.look(nil); err != nil {
			return err
		}
	}
	if len(p.Changes) == 0 {
		return nil
	}
	return f.look(p)
}

// poll calls look again and again.
func poll(ctx context.Context, look func(page *api.ChangePage) error) error {
	for {
		if err := look(nil); err != nil {
			return err
		}
		if !wait(ctx, watchEvery) {
			return nil
		}
	}
}

// wait waits. It returns false if ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func newWatch(o *options) *cobra.Command {
	var classes, workflows, kinds, queues []string
	var key string
	cmd := &cobra.Command{
		Use: "watch", Short: "Print changes as they happen",
		Long: `Print changes as they happen: of executions, tasks, entities, workers and settings, without inputs and outputs. The command ends when you interrupt it.

The changes come from a server, which has the changes of its whole cluster, or from the program that has a file open. If the command reads the store
itself, it prints only executions, and reads them again every second.`,
		Example: `  perdure watch
  perdure watch --class task --class setting -o json
  perdure watch --workflow order --key o-42`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := api.WatchRequest{}
			for _, c := range classes {
				r.Classes = append(r.Classes, model.ChangeClass(c))
			}
			for _, k := range kinds {
				r.Kinds = append(r.Kinds, model.ChangeKind(k))
			}
			r.Types, r.Key, r.Queues = workflows, key, queues
			return o.with(cmd.Context(), true, func(b api.Backend) error { return o.printFeed(cmd.Context(), b, r) })
		},
	}
	cmd.Flags().StringSliceVar(&classes, "class", nil, "print only these classes: execution, task, entity, worker, setting")
	cmd.Flags().StringSliceVar(&workflows, "workflow", nil, "print only changes of these workflows; task:a is the activity a, entity:e the entity e")
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "print only these kinds of changes, such as claimed or failed")
	cmd.Flags().StringSliceVar(&queues, "queue", nil, "print only changes of tasks of these queues, and of the queues themselves")
	cmd.Flags().StringVar(&key, "key", "", "print only changes of executions and entities with this key")
	return cmd
}

// changeLine is a change in JSON.
type changeLine struct {
	Class    string `json:"class"`
	Change   string `json:"change"`
	At       string `json:"at"`
	Workflow string `json:"workflow,omitempty"`
	Entity   string `json:"entity,omitempty"`
	Key      string `json:"key,omitempty"`
	Run      string `json:"run,omitempty"`
	Step     string `json:"step,omitempty"`
	Name     string `json:"name,omitempty"`
	Of       string `json:"of,omitempty"`
	Queue    string `json:"queue,omitempty"`
	Status   string `json:"status,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Locked   bool   `json:"locked,omitempty"`
	Event    int64  `json:"event,omitempty"`
}

// printFeed prints changes. If there is no feed, it prints only changes of executions.
func (o *options) printFeed(ctx context.Context, b api.Backend, r api.WatchRequest) error {
	instead := o.watchList(b, api.ListRequest{Tenant: o.tenant, Workflows: r.Types, Key: r.Key, AllRuns: true, Limit: 100}, 100)
	looks := 0
	return o.follow(ctx, b, r, func(page *api.ChangePage) error {
		if page != nil {
			for i := range page.Changes {
				if err := o.printChange(&page.Changes[i]); err != nil {
					return err
				}
			}
			return nil
		}

		// The first call prints nothing, because the command only prints changes. A later call
		// without a page means that there was a gap, or that there is no feed.
		if looks++; looks == 1 {
			return instead.readAll(ctx, func(*api.Description) error { return nil })
		}
		return instead.readAll(ctx, func(d *api.Description) error {
			c := api.Change{
				Class: model.ClassExecution, Kind: model.ChangeKind(d.Outcome.Status.String()), Address: d.Start.Address, Run: d.Start.Run,
				Status: d.Outcome.Status, At: max(d.Start.At, d.Outcome.At),
			}
			if len(d.Reasons) > 0 {
				c.Reason = d.Reasons[0].Code
			}
			return o.printChange(&c)
		})
	})
}

func (o *options) printChange(c *api.Change) error {
	l := changeLine{
		Class: string(c.Class), Change: string(c.Kind), At: c.At.String(), Key: c.Address.Key, Step: c.Task, Name: c.Name, Of: c.Of, Queue: c.Queue,
		Reason: string(c.Reason), Locked: c.Locked, Event: c.Seq,
	}
	if c.Address.IsEntity() {
		l.Entity = entityWords([]string{c.Address.Type})[0]
	} else {
		l.Workflow = c.Address.Type
	}
	if !c.Run.IsZero() {
		l.Run = c.Run.String()
	}
	if c.Status != 0 {
		l.Status = c.Status.String()
	}
	if o.structured() {
		return o.jsonLine(l)
	}

	subject := dash(c.Name)
	if c.Address.Key != "" {
		subject = nameOf(c.Address)
	}
	detail := string(c.Reason)
	switch {
	case c.Class == model.ClassTask && c.Task != model.TaskStep:
		detail = c.Name
	case c.Class == model.ClassSetting || c.Class == model.ClassWorker:
		detail = c.Of
	case c.Locked:
		detail = "locked"
	}
	return o.printLine("%s  %-9s  %-10s  %s  %s", clockText(c.At.Std()), c.Class, c.Kind, subject, detail)
}

// printLine prints one line. On a terminal it cuts a line that does not fit.
func (o *options) printLine(format string, args ...any) error {
	text := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	if o.Width > 1 && !o.wide && !o.full {
		text = shorten(text, o.Width-1)
	}
	_, err := fmt.Fprintln(o.Out, text)
	return err
}

// clockText returns the time of day for people.
func clockText(t time.Time) string { return t.UTC().Format("15:04:05.000Z") }
