package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// editedLine is the result of an edit, in JSON.
type editedLine struct {
	Entity  string `json:"entity"`
	Key     string `json:"key"`
	Version int64  `json:"version"`
	ETag    string `json:"etag"`
}

func newEntityEdit(o *options) *cobra.Command {
	var version, state, requestID string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "edit entity/key", Short: "Replace the state of an entity if its version is the expected one", Args: cobra.ExactArgs(1),
		Long: `Replace the state of an entity if its version is the expected one. The owner of the entity writes the new state in one commit, and runs no code.

The command changes nothing and returns a conflict if the entity has another version, if an operation of the entity is running, or if an execution holds the
lock of the entity. perdure entity show prints the version, and with -o json also the etag. --version accepts both. Prefer the etag: version numbers start
again at 1 when an entity is deleted and created again. Use version 0 for an entity without a state. The command stores the JSON as you give it, without the
payload settings of your program.`,
		Example: `  perdure entity edit account/42 --version 3 --state '{"Cents": 100}'
  perdure entity edit account/42 --version 3-1789000000000000 --state @account.json`,
		ValidArgsFunction: o.entityNames(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := o.entityAddress(args[0])
			if err != nil {
				return err
			}
			r := api.EditRequest{Address: a, RequestID: requestID}
			var ok bool
			if r.Version, ok = model.ParseEntityVersion(version); !ok {
				return fault.New(fault.Invalid, "--version is %.80q, must be the version or the etag that perdure entity show prints", version)
			}
			if r.State, err = o.input("--state", state); err != nil {
				return err
			}
			return o.within(cmd.Context(), timeout, func(ctx context.Context, b api.Backend) error { return o.edit(ctx, b, r) })
		},
	}

	cmd.Flags().StringVar(&version, "version", "", "version or etag that the entity must have; 0 for an entity without a state")
	cmd.Flags().StringVar(&state, "state", "", "new state as JSON, @file, or - for standard input")
	cmd.Flags().StringVar(&requestID, "request-id", "", "id that makes the request safe to repeat: a repetition gets the same answer")
	for _, name := range []string{"version", "state"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // cannot happen: the flag is defined above
		}
	}
	entityPatience(cmd, &timeout)

	return cmd
}

// edit replaces the state of an entity and prints the new version.
func (o *options) edit(ctx context.Context, b api.Backend, r api.EditRequest) (err error) {
	if r.Address, err = findEntity(ctx, b, r.Address); err != nil {
		return err
	}
	made, err := b.EditEntity(ctx, r)
	if err != nil {
		return err
	}
	if o.structured() {
		return o.json(editedLine{entityWord(r.Address.Type), r.Address.Key, made.Number, made.String()})
	}
	_, err = fmt.Fprintf(o.Out, "%s now has version %d\n", nameOf(r.Address), made.Number)
	return err
}
