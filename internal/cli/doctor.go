package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/store"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	State  string `json:"state"` // ok, warning or problem
	Detail string `json:"detail"`
}

func newDoctor(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check a store for problems",
		Long: `Check a store: schema, databases of shard groups, nodes, shards, clock, role and pooler of each database, the log of SQLite, blocked executions of all tenants, unreadable messages. The command changes nothing. The exit code is 9 if it finds a problem.

With --server and an admin key it checks what the server knows: its health, its store (clock, schema, role and pooler of the database), nodes and shards, the versions of its workers, and the executions and tasks of all tenants.`,
		Example: "  perdure doctor --store postgres://localhost/app\n  perdure doctor --server grpc://host:7800",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := o.examine(cmd.Context())
			if err != nil {
				return err
			}
			return o.printFindings(found)
		},
	}
}

// printFindings prints the findings. It returns an error if one of them is a problem.
func (o *options) printFindings(found []finding) (err error) {
	if o.structured() {
		err = o.json(found)
	} else {
		rows := make([][]string, len(found))
		for i, f := range found {
			rows[i] = []string{f.State, f.Check, f.Detail}
		}
		err = o.table("", rows)
	}

	for _, f := range found {
		if f.State == "problem" && err == nil {
			err = fault.New(fault.Blocked, "%s: %s", f.Check, f.Detail)
		}
	}
	return err
}

func (o *options) examine(ctx context.Context) ([]finding, error) {
	if remote.IsURL(o.store) {
		return o.examineServer(ctx)
	}
	schema, err := node.CheckSchema(ctx, node.Config{URL: o.store, Schema: o.schema, Databases: o.databaseURLs()})
	var found []finding
	if fault.Is(err, fault.Unavailable) {
		return nil, err // a second attempt would take as long again
	}
	if err != nil {
		// A server that may lose commits is one of the findings, and the command still makes the
		// other checks.
		looked, unsafe := node.CheckSchema(ctx, node.Config{URL: o.store, Schema: o.schema, Databases: o.databaseURLs(), AllowUnsafe: true})
		if unsafe != nil {
			return nil, err
		}
		schema, found = looked, []finding{{"server", "problem", err.Error()}}
	}

	switch {
	case schema.Version == 0:
		return append(found, finding{"schema", "problem", "the store has no schema: run perdure migrate, or open the store with a program"}), nil
	case schema.Version < schema.Latest:
		return append(found, finding{"schema", "problem", fmt.Sprintf("the schema has version %d, must be %d: run perdure migrate", schema.Version, schema.Latest)}), nil
	}

	found = append(found, finding{"schema", "ok", fmt.Sprintf("version %d, %d shards", schema.Version, schema.Shards)})
	// The rest of the checks needs all databases.
	if of := schemaFindings(schema.Databases); len(of) > 0 {
		found = append(found, of...)
		if slices.ContainsFunc(of, func(f finding) bool { return f.State == "problem" }) {
			return found, nil
		}
	}
	n, err := o.lookInside(ctx)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	sent := time.Now()
	view, err := n.Store().Members(ctx)
	if err != nil {
		return nil, err
	}

	found = append(found, clockFinding(view.Now, sent, time.Now()))
	found = append(found, memberFindings(view)...)
	if liveNodes(view) > 0 {
		nodes, shards, err := loadPlacement(ctx, n.Admin())
		if err != nil {
			return nil, err
		}
		found = append(found, groupFindings(countGroups(nodes, shards))...)
	}
	if inspected, ok := n.Store().(store.Inspected); ok {
		about, err := inspected.Inspect(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, databaseFindings(about)...)
	}
	found = append(found, partFindings(ctx, n.Store())...)
	if logged, ok := n.Store().(store.Logged); ok {
		f, err := logFinding(logged)
		if err != nil {
			return nil, err
		}
		found = append(found, f)
	}

	stuck, err := allTenantFindings(ctx, n.Admin(), liveNodes(view) > 0, func(string) (api.Backend, func() error, error) {
		return n.Backend(), func() error { return nil }, nil
	})
	if err != nil {
		return append(found, stuck...), err
	}
	mail, err := mailFinding(ctx, n.Store())

	return append(append(found, stuck...), mail), err
}

// schemaFindings looks at the databases that hold shard groups.
func schemaFindings(all []node.DatabaseStatus) (found []finding) {
	for i := range all {
		d := &all[i]
		f := finding{"database " + d.Name, "ok", describeDatabase(d)}
		if d.Problem != "" {
			f.State = "problem"
		}
		found = append(found, f)
	}
	return found
}

// mailFinding looks for messages that the engine cannot read: damaged messages, which the engine
// set aside, and messages of a newer version, which wait. It also counts messages that the engine
// refused after their senders had stopped waiting, such as a call that crashed every process that
// ran it.
func mailFinding(ctx context.Context, s store.Store) (finding, error) {
	const page, pageBytes = 1000, 16 << 20
	damaged, newer, refused, example, refusal := 0, 0, 0, "", ""
	for after := (model.RunID{}); ; {
		letters, err := s.LoadDeadLetters(ctx, after, page)
		if err != nil {
			return finding{}, err
		}

		for i := range letters {
			switch l := &letters[i]; {
			case l.Damaged != nil:
				damaged, example = damaged+1, l.Damaged.Why
			case l.Message.Kind == model.MessageNothing:
				damaged, example = damaged+1, l.Message.ID
			default:
				refused, refusal = refused+1, l.Message.ID // the id holds the reason
			}
			after = letters[i].ID
		}

		if len(letters) < page {
			break
		}
	}

	shards := make([]model.ShardID, s.Info().Shards)
	for i := range shards {
		shards[i] = model.ShardID(i)
	}
	waiting, _, err := s.LoadInbox(ctx, shards, model.MaxTime-1, page, pageBytes)
	if !store.Whole(err) {
		return finding{}, err
	}

	for i := range waiting {
		if d := waiting[i].Damaged; d != nil && d.Newer {
			newer, example = newer+1, d.Why
		}
	}

	switch {
	case damaged > 0:
		return finding{"messages", "problem", fmt.Sprintf("%d messages are damaged and set aside, such as %s", damaged, example)}, nil
	case newer > 0:
		return finding{"messages", "warning", fmt.Sprintf("%d messages wait for a node with a newer version, such as %s", newer, example)}, nil
	case refused > 0:
		return finding{"messages", "warning", fmt.Sprintf("%d messages were refused and are kept as dead letters, such as: %s", refused, refusal)}, nil
	}

	return finding{"messages", "ok", "all messages are readable"}, nil
}

// clockFinding compares the clock of the store, or of one of its databases, with the clock of this
// machine. A difference is harmless to the engine, because leases use only the clock of the store,
// but it confuses people who compare times. If the clock of a database that holds shard groups is
// wrong, requests that wait in it for a time may start late.
func clockFinding(now model.Time, sent, got time.Time) finding {
	middle := sent.Add(got.Sub(sent) / 2)
	skew := now.Std().Sub(middle).Round(time.Millisecond)
	if skew.Abs() > 2*time.Second {
		return finding{"clock", "warning", fmt.Sprintf("the clocks of the store and of this machine differ by %s", skew)}
	}
	return finding{"clock", "ok", fmt.Sprintf("the clocks of the store and of this machine agree (%s)", skew)}
}

// liveNodes counts the nodes whose lease has not ended.
func liveNodes(v store.View) (n int) {
	for i := range v.Members {
		if v.Members[i].Expires >= v.Now {
			n++
		}
	}
	return n
}

func memberFindings(v store.View) []finding {
	live, expired, drained := map[model.NodeID]int64{}, 0, 0
	for _, m := range v.Members {
		if m.Expires >= v.Now {
			live[m.ID] = m.Epoch
			if m.Drained {
				drained++
			}
		} else {
			expired++
		}
	}

	orphans := 0
	for _, s := range v.Owners {
		if epoch, ok := live[s.Node]; !ok || epoch != s.Epoch {
			orphans++
		}
	}

	nodes := drainFinding(len(live), drained, fmt.Sprintf("%d alive", len(live)))
	if expired > 0 {
		nodes = finding{"nodes", "warning", fmt.Sprintf("%d alive, %d with an expired lease that no node took over", len(live), expired)}
	}
	shards := finding{"shards", "ok", fmt.Sprintf("all %d have an owner", len(v.Owners))}

	switch {
	case len(live) == 0:
		shards = finding{"shards", "ok", "no node is running; executions wait"}
	case orphans > 0:
		shards = finding{"shards", "warning", fmt.Sprintf("%d of %d have no live owner", orphans, len(v.Owners))}
	}

	return []finding{nodes, shards}
}

// logFinding checks the size of the write-ahead log. A log that keeps growing fills the disk.
func logFinding(s store.Logged) (finding, error) {
	bytes, normal, err := s.LogSize()
	if err != nil {
		return finding{}, err
	}
	const mib = 1 << 20
	if bytes > normal {
		return finding{"log", "warning", fmt.Sprintf("the write-ahead log has %d MiB, normal is up to %d: look for a program that keeps a transaction on the file open", bytes/mib, normal/mib)}, nil
	}
	return finding{"log", "ok", fmt.Sprintf("the write-ahead log has %d MiB", bytes/mib)}, nil
}

// allTenantFindings looks at the executions of every tenant. If there are several tenants, each
// finding names its tenant. If no node is live, no process has any code. That is normal, so
// allTenantFindings does not look for missing code.
func allTenantFindings(ctx context.Context, a api.Admin, live bool, backend func(tenant string) (api.Backend, func() error, error)) ([]finding, error) {
	tenants, err := a.Tenants(ctx)
	if err != nil {
		return nil, err
	}

	var found []finding
	for _, t := range tenants {
		b, end, err := backend(t.Name)
		if err != nil {
			return found, err
		}
		one, err := executionFindings(ctx, b, t.Name)
		if err == nil && live {
			var code []finding
			code, err = codeFindings(ctx, b, t.Name)
			one = append(one, code...)
		}
		if err = errors.Join(err, end()); err != nil {
			return found, err
		}
		if len(tenants) > 1 {
			for i := range one {
				one[i].Check += " of " + t.Name
			}
		}
		found = append(found, one...)
	}
	return found, nil
}

// executionFindings looks for runs that cannot continue without a change by an operator.
func executionFindings(ctx context.Context, b api.Backend, tenant string) ([]finding, error) {
	req := api.ListRequest{Tenant: tenant, Statuses: []model.Status{model.Running}, Limit: 1000, Explain: true}
	open, stuck, unowned, example := 0, map[model.ReasonCode]int{}, 0, ""
	for {
		page, err := b.List(ctx, req)
		if err != nil {
			return nil, err
		}

		for i := range page.Executions {
			open++
			d := &page.Executions[i]
			if len(d.Reasons) == 0 || !d.Reasons[0].Code.Strands() {
				continue
			}
			why := d.Reasons[0]
			if why.Code == model.WaitOwner { // the checks of nodes and shards report this
				unowned++
				continue
			}
			stuck[why.Code]++
			example = d.Start.Address.Type + "/" + d.Start.Address.Key + " " + why.String()
		}

		if req.Cursor = page.Cursor; req.Cursor == "" {
			break
		}
	}

	if len(stuck) > 0 {
		n, counts := 0, make([]string, 0, len(stuck))
		for _, code := range slices.Sorted(maps.Keys(stuck)) {
			n += stuck[code]
			counts = append(counts, fmt.Sprintf("%d %s", stuck[code], code))
		}
		text := fmt.Sprintf("%d of %d open executions cannot continue (%s), such as %s", n, open, strings.Join(counts, ", "), example)
		return []finding{{"executions", "problem", text}}, nil
	}
	text := fmt.Sprintf("%d open, none blocked", open)
	if unowned > 0 {
		text += fmt.Sprintf(", %d wait for a process", unowned)
	}
	return []finding{{"executions", "ok", text}}, nil
}
