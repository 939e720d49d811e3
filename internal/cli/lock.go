package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func newLock(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "lock", Short: "Locks of entities",
		Long: `List the locks that sections of workflows hold on entities, and release one by force. A lock is released when its section or its execution ends. If a lock is
held for long, perdure workflow explain tells what its execution waits for.`,
		Example: `  perdure lock list
  perdure lock waiters account/42
  perdure lock release account/42 --epoch 1763251200000000`,
	}
	cmd.AddCommand(newLockList(o), newLockWaiters(o), newLockRelease(o))
	return cmd
}

// lockLine is a lock in JSON.
type lockLine struct {
	Execution string `json:"execution,omitempty"`
	Run       string `json:"run,omitempty"`
	Section   string `json:"section,omitempty"`
	Epoch     int64  `json:"epoch"`
	Since     string `json:"since,omitempty"`
}

// lockOf returns the lock of an entity, or nil if the entity is not locked.
func lockOf(n *model.Entity) *lockLine {
	if !n.Locked() {
		return nil
	}
	h := &n.Holder
	return &lockLine{Execution: nameOf(h.Address), Run: h.Run.String(), Section: h.ID, Epoch: n.Epoch, Since: when(n.Held)}
}

func newLockList(o *options) *cobra.Command {
	var f entityFlags
	cmd := &cobra.Command{
		Use: "list [entity]", Short: "List locked entities and the executions that hold the locks", Args: cobra.MaximumNArgs(1),
		Example: "  perdure lock list\n  perdure lock list account --prefix eu- -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.locked = true
			found, more, err := o.readEntities(cmd.Context(), args, &f)
			if err != nil {
				return err
			}
			type line struct {
				Entity string `json:"entity"`
				Key    string `json:"key"`
				lockLine
			}

			lines, rows := make([]line, len(found)), make([][]string, len(found))
			for i := range found {
				n := &found[i]
				l := lockOf(n)
				if l == nil { // the row is unreadable
					l = &lockLine{}
				}
				lines[i] = line{entityWord(n.Address.Type), n.Address.Key, *l}
				rows[i] = []string{nameOf(n.Address), dash(l.Execution), dash(l.Run), dash(l.Section), strconv.FormatInt(l.Epoch, 10), second(n.Held)}
			}

			if o.structured() {
				return o.json(lines)
			}
			if err := o.table("ENTITY\tHELD BY\tRUN?\tSECTION?\tEPOCH\tSINCE", rows); err != nil {
				return err
			}
			o.more(more)

			return nil
		},
	}

	f.add(cmd)
	return cmd
}

func newLockWaiters(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "waiters entity/key", Short: "List the executions that wait for the lock of an entity, in their order", Args: cobra.ExactArgs(1),
		Example: "  perdure lock waiters account/42", ValidArgsFunction: o.entityNames(true),
		RunE: o.withEntity(o.printWaiters),
	}
}

func (o *options) printWaiters(info *api.EntityInfo) error {
	n, waiters, rows := &info.Entity, []waitLine{}, [][]string{}
	for i := range info.Waiting {
		it := &info.Waiting[i]
		if it.Message.Kind != model.MessageLock {
			continue
		}
		w := waitOf(it)
		waiters = append(waiters, w)
		rows = append(rows, []string{strconv.Itoa(len(waiters)), w.From, w.Run, w.Section, second(it.At)})
	}

	if o.structured() {
		return o.json(struct {
			Entity  string     `json:"entity"`
			Key     string     `json:"key"`
			Lock    *lockLine  `json:"lock,omitempty"`
			Waiters []waitLine `json:"waiters"`
			More    bool       `json:"more_waiting,omitempty"`
		}{entityWord(n.Address.Type), n.Address.Key, lockOf(n), waiters, info.More})
	}

	if l := lockOf(n); l != nil {
		o.say(o.Err, fmt.Sprintf("%s is locked by %s (%s) since %s.", nameOf(n.Address), l.Execution, l.Run, stamp(n.Held)))
	} else {
		fmt.Fprintf(o.Err, "%s is not locked.\n", nameOf(n.Address))
	}

	if info.More {
		fmt.Fprintln(o.Err, "The list is not complete: more requests wait for the entity.")
	}

	if len(rows) == 0 {
		fmt.Fprintln(o.Err, "No execution waits for its lock.")
		return nil
	}

	return o.table("#\tEXECUTION\tRUN?\tSECTION\tSINCE", rows)
}

func newLockRelease(o *options) *cobra.Command {
	var epoch int64
	var force bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "release entity/key", Short: "Take the lock of an entity away from the section that holds it", Args: cobra.ExactArgs(1),
		Long: `Take the lock of an entity away from the section that holds it. The execution of the section continues without notice. Its changes of the entity stay, but its
further calls of the entity in that section fail with a conflict. The next execution gets the lock with a larger epoch, so systems that check fencing tokens
reject the old holder.

If you can, cancel or terminate the execution instead: its end releases all its locks. Without --epoch and --force the command prints the holder of the lock and
changes nothing.`,
		Example: `  perdure lock release account/42
  perdure lock release account/42 --epoch 1763251200000000
  perdure lock release account/42 --force`,
		ValidArgsFunction: o.entityNames(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := o.entityAddress(args[0])
			if err != nil {
				return err
			}

			if !force && epoch == 0 {
				return o.with(cmd.Context(), true, func(b api.Backend) error {
					a, err := findEntity(cmd.Context(), b, a)
					if err != nil {
						return err
					}
					return rehearseRelease(cmd.Context(), b, a)
				})
			}

			return o.within(cmd.Context(), timeout, func(ctx context.Context, b api.Backend) error {
				a, err := findEntity(ctx, b, a)
				if err != nil {
					return err
				}
				return o.release(ctx, b, api.UnlockRequest{Address: a, Epoch: epoch})
			})
		},
	}
	cmd.Flags().Int64Var(&epoch, "epoch", 0, "epoch of the lock, as perdure lock list shows it; the command fails if the lock has another epoch now")
	cmd.Flags().BoolVar(&force, "force", false, "take the lock from any section that holds it")
	cmd.MarkFlagsMutuallyExclusive("epoch", "force")
	entityPatience(cmd, &timeout)
	return cmd
}

// rehearseRelease returns an error that names the holder of the lock and the command that takes the
// lock from the holder.
func rehearseRelease(ctx context.Context, b api.Backend, a model.Address) error {
	info, err := b.Entity(ctx, a)
	if err != nil {
		return err
	}
	l := lockOf(&info.Entity)
	if l == nil {
		return notLocked(a)
	}
	return fault.WithHint(fault.New(fault.Invalid, "%s is locked by %s (%s) since %s: without the lock, its further calls of %s in that section fail",
		nameOf(a), l.Execution, l.Run, stamp(info.Entity.Held), nameOf(a)),
		"perdure lock release %s --epoch %d takes the lock from it; --force takes it from any holder", nameOf(a), l.Epoch)
}

func notLocked(a model.Address) error {
	return fault.New(fault.NotFound, "%s is not locked", nameOf(a))
}

// release takes the lock of an entity and prints who held it.
func (o *options) release(ctx context.Context, b api.Backend, r api.UnlockRequest) error {
	before, err := b.Entity(ctx, r.Address)
	if err != nil {
		return err
	}
	if err := b.Unlock(ctx, r); err != nil {
		return err
	}

	l := lockOf(&before.Entity)
	if l == nil || r.Epoch != 0 && l.Epoch != r.Epoch {
		l = &lockLine{Epoch: r.Epoch} // another section got the lock after the read
	}

	if o.structured() {
		return o.json(struct {
			Entity string `json:"entity"`
			Key    string `json:"key"`
			lockLine
		}{entityWord(r.Address.Type), r.Address.Key, *l})
	}

	from := ""
	if l.Execution != "" {
		from = " from " + l.Execution
	}
	_, err = fmt.Fprintf(o.Out, "took the lock of %s%s\n", nameOf(r.Address), from)

	return err
}
