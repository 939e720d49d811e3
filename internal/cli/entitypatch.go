package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func newEntityPatch(o *options) *cobra.Command {
	var expect, patch string
	var dry bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "patch entity/key", Short: "Change parts of the state of an entity with a JSON merge patch", Args: cobra.ExactArgs(1),
		Long: `Change parts of the state of an entity with a JSON merge patch (RFC 7396): a member of the patch replaces the member of the state with its name, null removes it, and objects are merged. A list is replaced
as a whole.

The command reads the state, merges the patch, and replaces the state as perdure entity edit does. The owner refuses it with a conflict if the state has changed since, or if --expect is another
version. --expect 0 creates the state of an entity that has none.

The command is safe to repeat: a second run of the same patch changes nothing more, or with --expect it fails with a conflict.`,
		Example: `  perdure entity patch account/42 --patch '{"Cents": 100, "Note": null}' --dry-run
  perdure entity patch account/42 --patch @patch.json --expect 3`,
		ValidArgsFunction: o.entityNames(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := statePatch{dry: dry, given: cmd.Flags().Changed("expect")}
			var err error
			if p.edit.Address, err = o.entityAddress(args[0]); err != nil {
				return err
			}
			var ok bool
			if p.expect, ok = model.ParseEntityVersion(expect); p.given && !ok {
				return fault.New(fault.Invalid, "--expect is %.80q, must be the version or the etag that perdure entity show prints", expect)
			}
			if p.patch, err = o.input("--patch", patch); err != nil {
				return err
			}
			if dry {
				return o.with(cmd.Context(), true, func(b api.Backend) error { return o.patch(cmd.Context(), b, &p) })
			}
			return o.within(cmd.Context(), timeout, func(ctx context.Context, b api.Backend) error { return o.patch(ctx, b, &p) })
		},
	}

	cmd.Flags().StringVar(&patch, "patch", "", "merge patch as JSON, @file, or - for standard input")
	if err := cmd.MarkFlagRequired("patch"); err != nil {
		panic(err) // cannot happen: the flag is defined above
	}
	cmd.Flags().StringVar(&expect, "expect", "", "version or etag that the entity must have; 0 for one without a state (default: the one that the command reads)")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what the patch would change, and change nothing")
	entityPatience(cmd, &timeout)
	return cmd
}

// statePatch is a patch of the state of an entity.
type statePatch struct {
	edit   api.EditRequest
	patch  model.Payload
	expect model.EntityVersion
	// given is true if the user says which version the entity must have.
	given, dry bool
}

// patch merges a patch into a state and replaces the state, or prints the difference.
func (o *options) patch(ctx context.Context, b api.Backend, p *statePatch) (err error) {
	r := &p.edit
	if r.Address, err = findEntity(ctx, b, r.Address); err != nil {
		return err
	}
	info, err := b.Entity(ctx, r.Address)
	if err != nil {
		return err
	}

	n := &info.Entity
	r.Version = n.VersionNow()
	if !p.given && r.Version.Number == 0 {
		return fault.WithHint(fault.New(fault.NotFound, "entity %s has no state", nameOf(r.Address)), "--expect 0 creates it")
	}
	if p.given && !p.expect.Fits(r.Version) {
		return fault.New(fault.Conflict, "entity %s has version %s, not %s: read it again", nameOf(r.Address), r.Version, p.expect)
	}

	before, err := stateJSON(n)
	if err != nil {
		return err
	}
	change, err := decodeJSON(p.patch.Data)
	if err != nil {
		return fault.New(fault.Invalid, "--patch: %w", err)
	}
	after := mergePatch(before, change)
	if p.dry {
		return o.printDifference(differences(nil, "", before, after))
	}

	var text bytes.Buffer
	if err := encodeJSON(&text, after, ""); err != nil {
		return err
	}
	r.State = model.Payload{Data: bytes.TrimSpace(text.Bytes())}
	return o.edit(ctx, b, *r)
}

// stateJSON returns the state of an entity; nil if it has none.
func stateJSON(n *model.Entity) (any, error) {
	if n.VersionNow().Number == 0 {
		return nil, nil
	}
	p := n.State.Bare()
	if p.Encoding != model.JSON {
		return nil, fault.New(fault.Invalid, "the state of %s is %s, and a merge patch needs JSON", nameOf(n.Address), encoding(p))
	}
	v, err := decodeJSON(p.Data)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the state of %s: %w", nameOf(n.Address), err)
	}
	return v, nil
}

// decodeJSON decodes one value and keeps the digits of its numbers.
func decodeJSON(data []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// mergePatch returns a value with a patch merged into it, by the rules of RFC 7396.
func mergePatch(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged := map[string]any{}
	if object, ok := target.(map[string]any); ok {
		merged = maps.Clone(object)
	}
	for name, change := range changes {
		if change == nil {
			delete(merged, name)
			continue
		}
		merged[name] = mergePatch(merged[name], change)
	}
	return merged
}

// difference is a part of a state that a patch changes, in JSON.
type difference struct {
	Path   string `json:"path"`
	Change string `json:"change"`
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
}

// differences appends what differs between two values, with JSON pointers as paths.
func differences(all []difference, path string, before, after any) []difference {
	was, object := before.(map[string]any)
	is, both := after.(map[string]any)
	if !object || !both {
		if !reflect.DeepEqual(before, after) {
			all = append(all, difference{path, "changed", before, after})
		}
		return all
	}

	names := maps.Clone(was)
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		old, had := was[name]
		now, has := is[name]
		switch {
		case !had:
			all = append(all, difference{Path: at, Change: "added", After: now})
		case !has:
			all = append(all, difference{Path: at, Change: "removed", Before: old})
		default:
			all = differences(all, at, old, now)
		}
	}
	return all
}

// printDifference prints what a patch would change.
func (o *options) printDifference(all []difference) error {
	if o.structured() {
		if all == nil {
			all = []difference{}
		}
		return o.json(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(o.Err, "The patch would change nothing.")
		return nil
	}

	rows := make([][]string, len(all))
	for i := range all {
		d := &all[i]
		rows[i] = []string{dash(d.Path), d.Change, valueText(d.Before), valueText(d.After)}
	}
	return o.table("PATH\tCHANGE\tBEFORE\tAFTER", rows)
}

// valueText returns a part of a state for people.
func valueText(v any) string {
	var text bytes.Buffer
	if v == nil || encodeJSON(&text, v, "") != nil {
		return "-"
	}
	return strings.TrimSpace(text.String())
}
