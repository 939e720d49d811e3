package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// elsewhere is a help text. It explains what a process that executes no tasks can show about a
// limit.
const elsewhere = "On PostgreSQL the command asks the running processes which tasks hold a limit and which tasks wait. On a file it asks the program that has the file open. If it can ask no process, it shows only the rules."

// flowVerb makes a command that does something to one named limit, breaker or queue.
//
//arch:parameters they are the texts of one command, and every caller names all of them
func (o *options) flowVerb(use, short, example, done string, do func(ctx context.Context, b api.Backend, name string) error) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: use + " name", Short: short, Example: example, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.within(cmd.Context(), timeout, func(ctx context.Context, b api.Backend) error { return do(ctx, b, args[0]) }); err != nil {
				return err
			}
			return o.printDone(done, args[0])
		},
	}

	patience(cmd, &timeout)
	cmd.Flags().Lookup("timeout").Usage = "how long the command may take"
	return cmd
}

// ---- limits

func newLimit(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "limit", Short: "Limits on concurrent tasks and on tasks per period"}
	known := func(ctx context.Context, b api.Backend, err error) error {
		return orKnown(err, "limits", func() ([]string, error) { return o.limitNames(ctx, b) })
	}

	var why string
	disable := o.flowVerb("disable", "Disable a limit: it bounds nothing, and keeps its definition",
		"  perdure limit disable smtp --reason 'the provider has raised our quota'", "disabled limit", func(ctx context.Context, b api.Backend, name string) error {
			return known(ctx, b, b.DisableLimit(ctx, o.tenant, name, why))
		})
	disable.Flags().StringVar(&why, "reason", "", "reason that the limit and the audit log show")

	enable := o.flowVerb("enable", "Enable a disabled limit", "  perdure limit enable smtp", "enabled limit", func(ctx context.Context, b api.Backend, name string) error {
		return known(ctx, b, b.EnableLimit(ctx, o.tenant, name))
	})
	remove := o.flowVerb("delete", "Delete a limit; tasks that name it wait until it exists again", "  perdure limit delete smtp", "deleted limit",
		func(ctx context.Context, b api.Backend, name string) error {
			return known(ctx, b, b.DeleteLimit(ctx, o.tenant, name))
		})

	cmd.AddCommand(newLimitList(o), newLimitShow(o), newLimitSet(o), disable, enable, remove)
	return cmd
}

// limitShape is a limit as the command prints it in JSON: the stored rule in the words of users,
// with the tasks that use it.
type limitShape struct {
	Name        string     `json:"name"`
	Queue       string     `json:"queue,omitempty"`
	Activity    string     `json:"activity,omitempty"`
	Per         string     `json:"per,omitempty"`
	Key         string     `json:"key,omitempty"`
	Concurrency int        `json:"concurrency,omitempty"`
	Rate        string     `json:"rate,omitempty"`
	Burst       int64      `json:"burst,omitempty"`
	Disabled    bool       `json:"disabled,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Uses        []useShape `json:"uses,omitempty"`
	// Others counts the keys that are not listed.
	Others othersShape `json:"others,omitzero"`
}

type othersShape struct {
	Keys    int `json:"keys"`
	Held    int `json:"held"`
	Waiting int `json:"waiting"`
}

type useShape struct {
	Key     string   `json:"key,omitempty"`
	Held    int      `json:"held"`
	Waiting int      `json:"waiting"`
	Holders []string `json:"holders,omitempty"`
	Waiters []string `json:"waiters,omitempty"`
}

func shapeLimit(l *api.LimitStatus) limitShape {
	r, n := &l.Rule, &l.Rule.Numbers
	s := limitShape{
		Name: r.Name, Queue: r.Queue, Activity: r.Kind, Per: r.Per.Word(), Key: r.Key,
		Concurrency: n.Concurrency, Rate: rule.FormatRate(n.Rate, n.Per), Burst: n.Burst, Disabled: r.Disabled, Reason: r.Why,
	}

	for _, u := range l.Uses {
		use := useShape{Key: u.Key, Held: u.Held, Waiting: u.Waiting}
		for _, r := range u.Holders {
			use.Holders = append(use.Holders, r.Address.Type+"/"+r.Address.Key)
		}
		for _, r := range u.Waiters {
			use.Waiters = append(use.Waiters, r.Address.Type+"/"+r.Address.Key)
		}
		s.Uses = append(s.Uses, use)
	}

	s.Others = othersShape(l.Others)
	return s
}

// status says whether the limit applies, and if not, why.
func (s *limitShape) status() string {
	switch {
	case !s.Disabled:
		return "enabled"
	case s.Reason == "":
		return "disabled"
	}
	return "disabled: " + s.Reason
}

// of describes which tasks the limit applies to.
func (s *limitShape) of() string {
	var parts []string
	if s.Per == string(api.PerName) {
		return "activities that name it"
	}
	if s.Queue != "" {
		parts = append(parts, "queue "+s.Queue)
	}
	if s.Activity != "" {
		parts = append(parts, "activity "+s.Activity)
	}

	if s.Per == string(api.PerKey) {
		parts = append(parts, "each "+s.Key)
	} else if s.Per != "" {
		parts = append(parts, "each "+s.Per)
	}

	return strings.Join(parts, ", ")
}

func (o *options) readLimits(ctx context.Context) ([]limitShape, error) {
	n, err := o.look(ctx)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	return o.shapeLimits(ctx, n.Backend())
}

func (o *options) shapeLimits(ctx context.Context, b api.Backend) ([]limitShape, error) {
	found, err := b.Limits(ctx, o.tenant)
	list := make([]limitShape, len(found))
	for i := range found {
		list[i] = shapeLimit(&found[i])
	}
	return list, err
}

func newLimitList(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List limits", Args: cobra.NoArgs, Long: "List limits. " + elsewhere, Example: "  perdure limit list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := o.readLimits(cmd.Context())
			if err != nil {
				return err
			}
			if o.structured() {
				return o.json(list)
			}
			rows := make([][]string, len(list))
			for i := range list {
				rows[i] = []string{list[i].Name, list[i].of(), number(list[i].Concurrency), dash(list[i].Rate), number(int(list[i].Burst)), list[i].status()}
			}
			return o.table("NAME\tFOR\tAT A TIME\tRATE\tBURST\tSTATUS", rows)
		},
	}
}

func newLimitShow(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "show name", Short: "Show a limit", Args: cobra.ExactArgs(1), Long: "Show a limit. " + elsewhere, Example: "  perdure limit show smtp",
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := o.readLimits(cmd.Context())
			if err != nil {
				return err
			}

			for i := range list {
				l := &list[i]
				switch {
				case l.Name != args[0]:
					continue
				case o.structured():
					return o.json(l)
				}

				rows := [][]string{
					{"Name", l.Name},
					{"For", l.of()},
					{"At a time", number(l.Concurrency)},
					{"Rate", dash(l.Rate)},
					{"Burst", number(int(l.Burst))},
					{"Status", l.status()},
				}
				for _, u := range l.Uses {
					of := ""
					if u.Key != "" {
						of = " " + u.Key
					}
					rows = append(rows, []string{"Held" + of, some(u.Held, u.Holders)}, []string{"Waiting" + of, some(u.Waiting, u.Waiters)})
				}

				if n := l.Others; n.Keys > 0 {
					rows = append(rows, []string{fmt.Sprintf("Held, %d other keys", n.Keys), number(n.Held)}, []string{fmt.Sprintf("Waiting, %d other keys", n.Keys), number(n.Waiting)})
				}
				return o.table("", rows)
			}

			names := make([]string, len(list))
			for i := range list {
				names[i] = list[i].Name
			}
			return orKnown(fault.New(fault.NotFound, "there is no limit %s", args[0]), "limits", func() ([]string, error) { return names, nil })
		},
	}
}

// some prints a number of tasks and the names of some of them.
func some(n int, names []string) string {
	if n == 0 {
		return "-"
	}
	text := fmt.Sprintf("%d: %s", n, strings.Join(names, ", "))
	if n > len(names) {
		text += ", …"
	}
	return text
}

func newLimitSet(o *options) *cobra.Command {
	var l api.Limit
	var per, rate string
	var anyQueue bool
	cmd := o.flowVerb("set", "Create or change a limit",
		`  perdure limit set smtp --concurrency 5
  perdure limit set api --queue 'api*' --rate 100/1m --burst 10
  perdure limit set customers --activity charge --key input.customer.id --concurrency 2`,
		"set limit", func(ctx context.Context, b api.Backend, name string) (err error) {
			l.Name = name
			if rate != "" {
				if l.Numbers.Rate, l.Numbers.Per, err = rule.ParseRate(rate); err != nil {
					return err
				}
			}
			l.Per = rule.ScopeOf(per)
			if err := b.SetLimit(ctx, o.tenant, l, anyQueue); err != nil || l.Queue != "" || l.Kind != "" || o.alone() {
				return err
			}
			o.warnOfLimit(ctx, b, name)
			return nil
		})
	cmd.Long = `Create or change a limit. Running tasks continue. Every process applies the limit within seconds.

Without --queue and --activity the limit applies to activities that name it with perdure.Limit. The command rejects a limit that contradicts another one.`
	cmd.Flags().StringVar(&l.Queue, "queue", "", "apply to tasks of this queue, or with mail* of all queues with this prefix")
	cmd.Flags().StringVar(&l.Kind, "activity", "", "apply to tasks of this activity; may end in *")
	cmd.Flags().StringVar(&per, "per", "", "count each queue or each activity separately: queue or activity")
	cmd.Flags().StringVar(&l.Key, "key", "", "count each value of this input field separately, such as input.customer.id")
	cmd.Flags().IntVar(&l.Numbers.Concurrency, "concurrency", 0, "most tasks that run at a time; 0 for no limit")
	cmd.Flags().StringVar(&rate, "rate", "", "most tasks that start per period, such as 100/1m")
	cmd.Flags().Int64Var(&l.Numbers.Burst, "burst", 0, "most tasks of the rate that start at the same time (1)")
	cmd.Flags().BoolVar(&anyQueue, "any-queue", false, "accept a queue that no worker serves yet")
	return cmd
}

// ---- circuit breakers

func newBreaker(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "breaker", Short: "Circuit breakers of tasks"}
	var why, pauseWhy, until string
	var span time.Duration
	var tripAny, pauseAny bool

	trip := o.flowVerb("trip", "Open a breaker now", "  perdure breaker trip bank --reason 'they migrate'", "tripped breaker",
		func(ctx context.Context, b api.Backend, name string) error {
			if err := o.newName(ctx, b, name, tripAny); err != nil {
				return err
			}
			return b.TripBreaker(ctx, o.tenant, name, why)
		})

	trip.Flags().BoolVar(&tripAny, "any-name", false, anyName)
	trip.Flags().StringVar(&why, "reason", "", "reason that the status shows")
	pause := o.flowVerb("pause", "Pause a breaker: its tasks wait until the pause ends", "  perdure breaker pause bank --for 2h --reason 'they migrate'", "paused breaker",
		func(ctx context.Context, b api.Backend, name string) error {
			if until == "" && span <= 0 {
				return fault.New(fault.Invalid, "--for is %s, must be > 0: use perdure breaker reset to end a pause", span)
			}
			at := time.Now().Add(span)
			if until != "" {
				var err error
				if at, err = time.Parse(time.RFC3339, until); err != nil {
					return fault.New(fault.Invalid, "--until is %q, must be a time such as 2026-11-15T08:00:00Z", until)
				}
			}
			if err := o.newName(ctx, b, name, pauseAny); err != nil {
				return err
			}
			return b.PauseBreaker(ctx, o.tenant, name, model.TimeOf(at), pauseWhy)
		})

	pause.Flags().BoolVar(&pauseAny, "any-name", false, anyName)
	pause.Flags().StringVar(&pauseWhy, "reason", "", "reason that the status shows")
	pause.Flags().DurationVar(&span, "for", 0, "how long")
	pause.Flags().StringVar(&until, "until", "", "end of the pause (RFC 3339); a time in the past ends it now")
	pause.MarkFlagsMutuallyExclusive("for", "until")
	pause.MarkFlagsOneRequired("for", "until")

	cmd.AddCommand(newBreakerList(o), newBreakerSet(o), trip, pause,
		o.flowVerb("reset", "Close a breaker and end its pause", "  perdure breaker reset bank", "reset breaker", func(ctx context.Context, b api.Backend, name string) error {
			return orKnown(b.ResetBreaker(ctx, o.tenant, name), "breakers", func() ([]string, error) { return o.breakerNames(ctx, b) })
		}),
		o.flowVerb("delete", "Delete the rule of a breaker; the defaults apply to it again", "  perdure breaker delete bank", "deleted the rule for breaker",
			func(ctx context.Context, b api.Backend, name string) error {
				return b.DeleteBreaker(ctx, o.tenant, name)
			}))

	return cmd
}

// breakerShape is a breaker in JSON.
type breakerShape struct {
	Name   string     `json:"name"`
	State  string     `json:"state"`
	Since  string     `json:"since,omitempty"`
	Until  string     `json:"until,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Paused bool       `json:"paused,omitempty"`
	Probes int        `json:"probes,omitempty"`
	Rule   *ruleShape `json:"rule"`
}

type ruleShape struct {
	Name      string  `json:"name"`
	Failures  int     `json:"failures,omitempty"`
	Ratio     float64 `json:"ratio,omitempty"`
	Calls     int     `json:"calls,omitempty"`
	Window    string  `json:"window,omitempty"`
	Reset     string  `json:"reset,omitempty"`
	Probes    int     `json:"probes,omitempty"`
	Successes int     `json:"successes,omitempty"`
}

func shapeRule(b *api.Breaker) *ruleShape {
	text := func(d time.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	return &ruleShape{b.Name, b.Failures, b.Ratio, b.Calls, text(b.Window), text(b.Reset), b.Probes, b.Successes}
}

func (r *ruleShape) openText() string {
	var parts []string
	if r.Failures > 0 {
		parts = append(parts, fmt.Sprintf("%d failures", r.Failures))
	}
	if r.Ratio > 0 {
		parts = append(parts, fmt.Sprintf("%g%% of calls", 100*r.Ratio))
	}
	text := strings.Join(parts, ", ")
	if r.Window != "" {
		text += " in " + r.Window
	}
	return dash(strings.TrimSpace(text))
}

func newBreakerList(o *options) *cobra.Command {
	var rules bool
	cmd := &cobra.Command{
		Use: "list", Short: "List circuit breakers and their states", Args: cobra.NoArgs, Example: "  perdure breaker list\n  perdure breaker list --rules -o json",
		Long: `List circuit breakers and their states. On a file that no program has open, a breaker that has never opened has no state.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := o.look(cmd.Context())
			if err != nil {
				return err
			}
			defer n.Close()
			if rules {
				return o.breakerRules(cmd.Context(), n.Backend())
			}
			return o.printBreakers(cmd.Context(), n.Backend())
		},
	}

	cmd.Flags().BoolVar(&rules, "rules", false, "list rules instead of breakers")
	return cmd
}

func (o *options) printBreakers(ctx context.Context, b api.Backend) error {
	found, err := b.Breakers(ctx, o.tenant)
	if err != nil {
		return err
	}
	list, rows := make([]breakerShape, len(found)), make([][]string, len(found))
	for i := range found {
		f := &found[i]
		list[i] = breakerShape{Name: f.Name, State: f.State, Since: when(f.Since), Until: when(f.Until), Reason: f.Why, Paused: f.Held, Probes: f.Probes, Rule: shapeRule(&f.Rule)}
		rows[i] = []string{f.Name, f.State, second(f.Since), second(f.Until), dash(f.Why)}
	}
	if o.structured() {
		return o.json(list)
	}
	return o.table("NAME\tSTATE\tSINCE\tNOTHING BEFORE\tWHY", rows)
}

func (o *options) breakerRules(ctx context.Context, b api.Backend) error {
	found, err := b.BreakerRules(ctx, o.tenant)
	if err != nil {
		return err
	}
	list, rows := make([]*ruleShape, len(found)), make([][]string, len(found))
	for i := range found {
		list[i] = shapeRule(&found[i])
		rows[i] = []string{list[i].Name, list[i].openText(), dash(list[i].Reset), number(list[i].Probes), number(list[i].Successes)}
	}
	if o.structured() {
		return o.json(list)
	}
	return o.table("NAME\tOPENS AFTER\tOPEN FOR\tPROBES\tSUCCESSES", rows)
}

func newBreakerSet(o *options) *cobra.Command {
	var r api.Breaker
	cmd := o.flowVerb("set", "Create or change the rule of a breaker",
		`  perdure breaker set bank --failures 10 --reset 1m
  perdure breaker set activity:charge --ratio 0.5 --calls 20`,
		"set the rule for breaker", func(ctx context.Context, b api.Backend, name string) error {
			r.Name = name
			return b.SetBreaker(ctx, o.tenant, r)
		})
	cmd.Long = `Create or change the rule of a breaker. Flags that you omit get their default.

The name is a breaker that activities name with perdure.Breaker, or activity:<name>, which gives the activity its own breaker. It may end in *.`
	cmd.Flags().IntVar(&r.Failures, "failures", 0, "number of failures in the window that opens the breaker (5; none with --ratio)")
	cmd.Flags().Float64Var(&r.Ratio, "ratio", 0, "share of failures that opens the breaker")
	cmd.Flags().IntVar(&r.Calls, "calls", 0, "least number of outcomes before the ratio counts (20)")
	cmd.Flags().Var(span(&r.Window, 0), "window", "length of the window in which outcomes count (1m)")
	cmd.Flags().Var(span(&r.Reset, 0), "reset", "how long the breaker stays open (30s)")
	cmd.Flags().IntVar(&r.Probes, "probes", 0, "tasks at a time that a half-open breaker lets start (1)")
	cmd.Flags().IntVar(&r.Successes, "successes", 0, "number of successful probes that closes the breaker (2)")
	cmd.Flags().Var(span(&r.Lease, 0), "lease", "how long a probe without an outcome counts as running (1m)")
	cmd.Flags().Var(span(&r.MaxRetryAfter, 0), "max-retry-after", "longest time for which RetryAfter may hold tasks back (24h)")
	return cmd
}

// ---- queues

// queueVerbs pause and resume queues.
func (o *options) queueVerbs() []*cobra.Command {
	var why string
	pause := o.flowVerb("pause", "Pause a queue; running tasks continue", "  perdure queue pause mail --reason deploy", "paused queue",
		func(ctx context.Context, b api.Backend, name string) error {
			if err := b.PauseQueue(ctx, o.tenant, name, why); err != nil || o.alone() {
				return err
			}
			// A misspelt name would pause nothing, and an operator in a hurry would not notice.
			workers, err := b.ListWorkers(ctx, o.tenant)
			if err == nil && !slices.ContainsFunc(workers, func(w api.WorkerInfo) bool { return slices.Contains(w.Queues, name) }) {
				fmt.Fprintf(o.Err, "No running worker serves queue %s; see perdure queue list.\n", name)
			}
			return nil // the queue is paused, even if the command could not ask for the workers
		})

	pause.Flags().StringVar(&why, "reason", "", "reason that the status shows")
	resume := o.flowVerb("resume", "Resume a paused queue", "  perdure queue resume mail", "resumed queue",
		func(ctx context.Context, b api.Backend, name string) error {
			return b.ResumeQueue(ctx, o.tenant, name)
		})

	return []*cobra.Command{pause, resume}
}
