package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// startLike starts an execution with the workflow, the input, the labels and the terms of another
// execution. The flags that the user gives win.
func (o *options) startLike(cmd *cobra.Command, like string, f *startFlags, r api.StartRequest) error {
	named, err := o.target(like, "")
	if err != nil {
		return err
	}
	return o.withExecution(cmd.Context(), f.timeout, named, func(ctx context.Context, b api.Backend, t api.Target) error {
		d, err := b.Describe(ctx, t)
		if err != nil {
			return err
		}
		if d.Start.Task != nil {
			return fault.WithHint(fault.New(fault.Invalid, "--like: %s is a task, not an execution of a workflow", like), "see `perdure task submit`")
		}

		r.Address.Type = d.Start.Address.Type
		if f.key == "" && f.hashKey == "" {
			r.Address.Key = uuid.NewString()
		}
		if r.Address.Key == d.Start.Address.Key {
			return fault.New(fault.Invalid, "--like: %s has this key: give --key another one, or leave it out", like)
		}
		if !cmd.Flags().Changed("input") {
			r.Input = d.Start.Input
		}
		r.Labels = likeLabels(d.Start.Labels, r.Labels)
		r.Terms = likeTerms(d.Start.Terms, r.Terms)
		return o.start(ctx, b, r, f.wait)
	})
}

// likeLabels merges the labels of an execution with the labels that the user gives. The labels of
// the user win.
func likeLabels(had, given []model.Label) []model.Label {
	all := map[string]string{}
	for _, l := range slices.Concat(had, given) {
		all[l.Name] = l.Value
	}
	return model.Labels(all)
}

// likeTerms merges the terms of an execution with the terms that the user gives. The terms of the
// user win. It does not copy the start time or the start delay, because they concern only the other
// execution.
func likeTerms(had, given *model.Terms) *model.Terms {
	if had == nil {
		return given
	}
	t := model.Terms{Timeout: had.Timeout, Retry: had.Retry}
	if given != nil {
		t.Delay, t.NotBefore = given.Delay, given.NotBefore
		if given.Timeout != 0 {
			t.Timeout = given.Timeout
		}
		if given.Retry != nil {
			t.Retry = given.Retry
		}
	}
	if t == (model.Terms{}) {
		return nil
	}
	return &t
}

// startName returns the workflow to start. If there is no argument, it is the workflow of --like.
// With --many it is empty, because the lines of the file name their workflows.
func startName(args []string, many, like string) (string, error) {
	switch {
	case len(args) > 0 && like != "":
		return "", fault.New(fault.Invalid, "--like has the workflow of %.100s: leave %.100q out", like, args[0])
	case len(args) > 0:
		return args[0], nil
	case many == "" && like == "":
		return "", fault.New(fault.Invalid, "name a workflow: perdure workflow start greet")
	}
	name, _, _ := strings.Cut(like, "/")
	return name, nil
}
