package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/streamread"
)

func newEntityStream(o *options) *cobra.Command {
	var text string
	cmd := &cobra.Command{
		Use: "stream entity/key stream", Short: "Read a stream of an entity, and print its items",
		Long: `Read a stream of an entity, and print its items, one per line, as they arrive.

The code of the stream runs in your program, and ends when the command ends. The command reads the stream through a server, or from the program that has the file open. The items are not stored: a second command reads the stream from the beginning. Exit code 0 means that the command has printed every item.`,
		Example: `  perdure entity stream log/web-1 tail --input 0
  perdure entity stream log/web-1 tail --input 0 -o json | jq .`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: o.entityNames(false),
	}

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		a, err := o.entityAddress(args[0])
		if err != nil {
			return err
		}
		r := api.CallRequest{Address: a, Name: args[1], View: true, Brief: true}
		if r.Input, err = o.input("--input", text); err != nil {
			return err
		}
		switch {
		case o.alone():
			return fault.WithHint(fault.New(fault.Invalid, "no program that runs the code of %s has the file open", entityWord(r.Address.Type)), "start the program")
		case strings.HasPrefix(o.store, "postgres"):
			return fault.WithHint(fault.New(fault.Invalid, "a command that opens PostgreSQL itself has no connection to the program that runs the code of %s", entityWord(r.Address.Type)),
				"read the stream through a server: --server grpc://host:7800")
		}
		return o.with(ctx, false, func(b api.Backend) error {
			if r.Address, err = findEntity(ctx, b, r.Address); err != nil {
				return err
			}
			return o.printItems(ctx, b, r)
		})
	}

	cmd.Flags().StringVar(&text, "input", "", "input as JSON, @file, or - for standard input (null)")
	return cmd
}

// printItems prints the items of a stream, one per line.
func (o *options) printItems(ctx context.Context, b api.Backend, r api.CallRequest) error {
	s, err := streamread.Open(ctx, b, r)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	defer s.Keep(ctx)()

	for {
		items, more, err := s.Next(ctx)
		for i := range items {
			if err := o.jsonLine(raw(items[i])); err != nil {
				return err
			}
			s.Taken()
		}
		if err != nil || !more {
			return err
		}
	}
}
