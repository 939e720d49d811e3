package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func newEntity(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "entity", Short: "Entities and services",
		Long: `List and show entities, and call their operations. Name an entity by its type and its key, as in account/42. Name a service with its kind, as in
service:gateway/eu. A service has no state, so it is not listed, but you can show the calls that wait for it and call its RPCs.`,
		Example: `  perdure entity list account --prefix eu-
  perdure entity show account/42
  perdure entity call account/42 deposit --input '{"Cents": 100}' --request-id d-1
  perdure entity send account/42 deposit --input '{"Cents": 100}'`,
	}
	cmd.AddCommand(newEntityList(o), newEntityShow(o), newEntityCall(o), newEntitySend(o), newEntityStream(o), newEntityEdit(o), newEntityPatch(o), newEntityDelete(o), newEntityMailbox(o), newEntityInterrupt(o), newEntityLog(o))
	return cmd
}

// entityType returns the type in the address of an entity. A service is written as service:name.
func entityType(name string) string {
	if strings.HasPrefix(name, model.ServicePrefix) || strings.HasPrefix(name, model.EntityPrefix) {
		return name
	}
	return model.EntityPrefix + name
}

// entityAddress parses entity/key.
func (o *options) entityAddress(arg string) (model.Address, error) {
	name, key, _ := strings.Cut(arg, "/")
	a := model.Address{Tenant: o.tenant, Type: entityType(name), Key: key}
	if key == "" || a.Type == model.EntityPrefix || a.Type == model.ServicePrefix {
		return a, fault.New(fault.Invalid, "%q is not the name of an entity: write entity/key, or service:name/key", arg)
	}
	return a, nil
}

// entityWord returns the type of an entity or a service as people write it.
func entityWord(typ string) string {
	if word := strings.TrimPrefix(typ, model.EntityPrefix); entityType(word) == typ {
		return word
	}
	return typ
}

func entityWords(types []string) []string {
	words := make([]string, len(types))
	for i, t := range types {
		words[i] = entityWord(t)
	}
	return words
}

// nameOf returns an address as people write it: entity/key or workflow/key.
func nameOf(a model.Address) string {
	if a.IsEntity() {
		return entityWord(a.Type) + "/" + a.Key
	}
	return a.Type + "/" + a.Key
}

// entityLine is an entity in JSON.
type entityLine struct {
	Entity  string    `json:"entity"`
	Key     string    `json:"key"`
	Exists  bool      `json:"exists"`
	Created string    `json:"created,omitempty"`
	Changed string    `json:"changed,omitempty"`
	Expires string    `json:"expires,omitempty"`
	Version int64     `json:"version"`
	ETag    string    `json:"etag"`
	State   any       `json:"state,omitempty"`
	Lock    *lockLine `json:"lock,omitempty"`
}

func entityLineOf(n *model.Entity) entityLine {
	l := entityLine{Entity: entityWord(n.Address.Type), Key: n.Address.Key, Exists: n.Exists, Version: n.Version, ETag: n.VersionNow().String(), Lock: lockOf(n)}
	if n.Exists {
		l.State, l.Created, l.Expires = raw(n.State), n.Created.String(), when(n.Expires)
	}
	l.Changed = when(n.Changed)
	return l
}

// entityFlags select entities.
type entityFlags struct {
	prefix           string
	locked           bool
	waiting, expired bool
	since, until     string
	least, most      int
	limit            int
}

// addState adds the flags that select entities by their state.
func (f *entityFlags) addState(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.locked, "locked", false, "list only locked entities")
	cmd.Flags().BoolVar(&f.waiting, "waiting", false, "list only entities for which stored calls wait")
	cmd.Flags().BoolVar(&f.expired, "expired", false, "list only states whose time is over and that are not removed yet")
	cmd.Flags().StringVar(&f.since, "since", "", "changed at or after this time (RFC 3339), or this long ago (1h)")
	cmd.Flags().StringVar(&f.until, "until", "", "changed before this time, or this long ago")
	cmd.Flags().Var(count(&f.least, 0), "min-version", "smallest version to list; 0 for any")
	cmd.Flags().Var(count(&f.most, 0), "max-version", "largest version to list; 0 for any")
}

// request returns the selection.
func (f *entityFlags) request(tenant string) (api.EntityListRequest, error) {
	r := api.EntityListRequest{
		Tenant: tenant, KeyPrefix: f.prefix, Locked: f.locked, Waiting: f.waiting, Expired: f.expired, MinVersion: int64(f.least), MaxVersion: int64(f.most), Limit: f.limit,
	}
	for _, b := range [...]struct {
		flag, value string
		to          *model.Time
	}{{"--since", f.since, &r.ChangedFrom}, {"--until", f.until, &r.ChangedTo}} {
		if b.value == "" {
			continue
		}
		at, err := moment(b.flag, b.value)
		if err != nil {
			return r, err
		}
		*b.to = model.TimeOf(at)
	}
	return r, nil
}

func (f *entityFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "select only keys with this prefix")
	cmd.Flags().Var(count(&f.limit, 50), "limit", "most entries to list; 0 lists all")
}

// readEntities reads the entities that the flags select, and reports whether there are more.
func (o *options) readEntities(ctx context.Context, args []string, f *entityFlags) (found []model.Entity, more bool, err error) {
	r, err := f.request(o.tenant)
	if err != nil {
		return nil, false, err
	}
	if len(args) > 0 {
		r.Type = entityType(args[0])
	}

	err = o.with(ctx, true, func(b api.Backend) error {
		for {
			page, err := b.ListEntities(ctx, r)
			if err != nil {
				return err
			}
			found = append(found, page.Entities...)
			if r.Cursor = page.Cursor; r.Cursor == "" || f.limit > 0 && len(found) >= f.limit {
				return nil
			}
		}
	})

	if f.limit > 0 && len(found) > f.limit {
		return found[:f.limit], true, err
	}
	return found, r.Cursor != "", err
}

func newEntityList(o *options) *cobra.Command {
	var f entityFlags
	cmd := &cobra.Command{
		Use: "list [entity]", Short: "List entities that exist or are locked, by type and key", Args: cobra.MaximumNArgs(1),
		Example: `  perdure entity list
  perdure entity list account --prefix eu- -o json
  perdure entity list account --locked
  perdure entity list account --since 1h --min-version 2
  perdure entity list --waiting`,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, more, err := o.readEntities(cmd.Context(), args, &f)
			if err != nil {
				return err
			}

			lines, rows := make([]entityLine, len(found)), make([][]string, len(found))
			for i := range found {
				n := &found[i]
				lines[i] = entityLineOf(n)
				rows[i] = []string{nameOf(n.Address), second(n.Changed), lockedBy(n), o.state(n)}
			}

			if o.structured() {
				return o.json(lines)
			}
			if err := o.table("ENTITY\tCHANGED\tLOCKED BY\tSTATE", rows); err != nil {
				return err
			}
			o.more(more)

			return nil
		},
	}

	f.add(cmd)
	f.addState(cmd)
	return cmd
}

// state returns the state of an entity as text.
func (o *options) state(n *model.Entity) string {
	switch {
	case n.Exists:
		return o.text(n.State)
	case n.Version > 0 && n.Empty():
		return "(unreadable)"
	}
	return "-"
}

// lockedBy returns the name of the execution that holds the lock of an entity.
func lockedBy(n *model.Entity) string {
	if !n.Locked() {
		return "-"
	}
	return nameOf(n.Holder.Address)
}

// waitLine is a call or a lock request that waits for an entity, in JSON.
type waitLine struct {
	Kind      string `json:"kind"`
	Operation string `json:"operation,omitempty"`
	From      string `json:"from,omitempty"`
	Run       string `json:"run,omitempty"`
	Section   string `json:"section,omitempty"`
	Since     string `json:"since"`
}

func waitOf(it *model.MailboxItem) waitLine {
	m := &it.Message
	w := waitLine{Kind: m.Kind.String(), Operation: m.Name, Section: m.Section, Since: it.At.String()}
	if !m.From.Address.IsZero() {
		w.From = nameOf(m.From.Address)
	}
	if !m.From.Run.IsZero() {
		w.Run = m.From.Run.String()
	}
	if m.Kind == model.MessageLock {
		w.Section = m.From.ID
	}
	return w
}

func newEntityShow(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "show entity/key", Short: "Show an entity: its state, the holder of its lock, and the calls that wait for it", Args: cobra.ExactArgs(1),
		Long: `Show an entity: its state, the holder of its lock, and the calls that wait for it.

The command lists calls and lock requests from the store: calls of workflows, other entities and other processes, and one-way calls. It does
not see calls from inside the process that owns the entity; perdure entity mailbox lists these too.`,
		Example:           "  perdure entity show account/42\n  perdure entity show service:gateway/eu -o json",
		ValidArgsFunction: o.entityNames(false),
		RunE:              o.withEntity(o.entity),
	}
}

// withEntity returns the function of a command. That function reads the entity that the argument
// names, and passes the entity to printed.
func (o *options) withEntity(printed func(*api.EntityInfo) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a, err := o.entityAddress(args[0])
		if err != nil {
			return err
		}
		return o.with(cmd.Context(), true, func(b api.Backend) error {
			a, err := findEntity(cmd.Context(), b, a)
			if err != nil {
				return err
			}
			info, err := b.Entity(cmd.Context(), a)
			if err != nil {
				return err
			}
			return printed(&info)
		})
	}
}

// entity prints an entity.
func (o *options) entity(info *api.EntityInfo) error {
	n := &info.Entity
	if n.Version == 0 && len(info.Waiting) == 0 && !n.Address.Stateless() {
		return fault.New(fault.NotFound, "entity %s does not exist, and no call waits for it", nameOf(n.Address))
	}
	waiting := make([]waitLine, len(info.Waiting))
	for i := range info.Waiting {
		waiting[i] = waitOf(&info.Waiting[i])
	}

	if o.structured() {
		return o.json(struct {
			entityLine
			Waiting []waitLine   `json:"waiting"`
			More    bool         `json:"more_waiting,omitempty"`
			Reasons []reasonLine `json:"reasons,omitempty"`
		}{entityLineOf(n), waiting, info.More, reasonLines(info.Reasons)})
	}

	rows := [][]string{{"Entity", nameOf(n.Address)}}
	if !n.Address.Stateless() {
		rows = append(rows, []string{"State", o.state(n)}, []string{"Created", stamp(n.Created)}, []string{"Changed", stamp(n.Changed)}, []string{"Version", number(int(n.Version))})
		if n.Expires != 0 {
			rows = append(rows, []string{"Expires", stamp(n.Expires)})
		}
		if l := lockOf(n); l != nil {
			rows = append(
				rows, []string{"Locked by", l.Execution + ", " + l.Run}, []string{"", "section " + l.Section},
				[]string{"", "epoch " + strconv.FormatInt(l.Epoch, 10) + ", since " + stamp(n.Held)},
			)
		}
	}

	head := "Waiting"
	if len(waiting) == 0 {
		rows = append(rows, []string{head, "nothing"})
	}

	for i, w := range waiting {
		rows = append(rows, []string{head, stamp(info.Waiting[i].At) + "  " + w.text()})
		head = ""
	}

	if info.More {
		rows = append(rows, []string{"", "and more"})
	}

	for i, r := range reasons(info.Reasons) {
		head := ""
		if i == 0 {
			head = "Why"
		}
		rows = append(rows, []string{head, "it " + r})
	}

	return o.table("", rows)
}

// text describes the call or the lock request for people.
func (w *waitLine) text() string {
	text := w.Kind
	if w.Operation != "" {
		text += " " + w.Operation
	}
	if w.From != "" {
		text += " from " + w.From
	}
	if w.Kind == model.MessageCall.String() && w.Section != "" {
		text += ", which holds the lock"
	}
	return text
}

// entityNames completes entity/key. If locked is set, it offers only locked entities.
func (o *options) entityNames(locked bool) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		f, of := entityFlags{locked: locked, limit: 100}, []string(nil)
		if name, key, ok := strings.Cut(begin, "/"); ok {
			of, f.prefix = []string{name}, key
		}
		found, _, err := o.readEntities(cmd.Context(), of, &f)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		names := make([]string, len(found))
		for i := range found {
			names[i] = nameOf(found[i].Address)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// callCommand adds the arguments, the flags and the function to a command that calls an operation.
// prepare checks the request, and reply prints the answer.
func (o *options) callCommand(cmd *cobra.Command, prepare func(r *api.CallRequest) error, reply func(r *api.CallRequest, out model.Payload) error) *cobra.Command {
	var text, requestID string
	var timeout time.Duration
	cmd.Args, cmd.ValidArgsFunction = cobra.ExactArgs(2), o.entityNames(false)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := o.entityAddress(args[0])
		if err != nil {
			return err
		}
		r := api.CallRequest{Address: a, Name: args[1], RequestID: requestID}
		if r.Input, err = o.input("--input", text); err != nil {
			return err
		}

		if err := prepare(&r); err != nil {
			return err
		}
		return o.within(cmd.Context(), timeout, func(ctx context.Context, b api.Backend) error {
			if r.Address, err = findEntity(ctx, b, r.Address); err != nil {
				return err
			}
			out, err := b.Call(ctx, r)
			if err != nil {
				return err
			}
			return reply(&r, out)
		})
	}

	cmd.Flags().StringVar(&text, "input", "", "input as JSON, @file, or - for standard input (null)")
	cmd.Flags().StringVar(&requestID, "request-id", "", "id that makes the request safe to repeat: a repetition gets the same answer")
	patience(cmd, &timeout)
	cmd.Flags().Lookup("timeout").Usage = "how long to wait for the answer"
	return cmd
}

func newEntityCall(o *options) *cobra.Command {
	return o.callCommand(&cobra.Command{
		Use: "call entity/key operation", Short: "Call an operation, a view or an RPC, and print the answer",
		Long: `Call an operation, a view or an RPC, and print the answer.

The code runs in your program. On PostgreSQL the command sends the call to the program that owns the entity. On a file it sends the call to the program that has the file open. If no program has, no code can run: use perdure entity send, which stores the call for the program.`,
		Example: `  perdure entity call account/42 deposit --input '{"Cents": 100}' --request-id d-1
  perdure entity call account/42 cents
  perdure entity call service:gateway/eu get_profile`,
	}, func(r *api.CallRequest) error {
		if o.alone() {
			return fault.WithHint(fault.New(fault.Invalid, "no program that runs the code of %s has the file open", entityWord(r.Address.Type)),
				"start the program, or store the call for it with `perdure entity send`")
		}
		return nil
	}, func(_ *api.CallRequest, out model.Payload) error { return o.value(out) })
}

func newEntitySend(o *options) *cobra.Command {
	return o.callCommand(&cobra.Command{
		Use: "send entity/key operation", Short: "Store a call and do not wait for the reply",
		Long: `Store a call and do not wait for the reply. A program that has the code executes the call once. Its result is discarded.`,
		Example: `  perdure entity send account/42 deposit --input '{"Cents": 100}'
  perdure entity send account/42 deposit --input @deposit.json --request-id d-2`,
	}, func(r *api.CallRequest) error {
		r.OneWay = true
		return nil
	}, func(r *api.CallRequest, _ model.Payload) error {
		if o.structured() {
			return o.json(struct {
				Entity    string `json:"entity"`
				Key       string `json:"key"`
				Operation string `json:"operation"`
			}{entityWord(r.Address.Type), r.Address.Key, r.Name})
		}
		_, err := fmt.Fprintf(o.Out, "sent %s to %s\n", r.Name, nameOf(r.Address))
		return err
	})
}
