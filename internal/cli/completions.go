package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/model"
)

const (
	// mostSuggested bounds the names that a completion suggests. A longer list would not help the
	// user.
	mostSuggested = 100
	// completionPatience is how long a completion may take. A shell waits for it.
	completionPatience = 10 * time.Second
)

// suggestFunc returns names that begin with a text. It may also return other names, because
// completions drop them.
type suggestFunc func(ctx context.Context, n session, begin string) ([]string, error)

// wordsFunc returns words that need no store.
type wordsFunc func() []string

// arguments says what completes the first argument of each command. Commands that have a completion
// of their own are not in it.
func (o *options) arguments() map[string]suggestFunc {
	all := map[string]suggestFunc{
		"workflow start": o.suggestWorkflows, "workflow execute": o.suggestWorkflows, "task submit": o.suggestActivities,
		"replay-report show": o.suggestReports, "worker describe": o.suggestWorkers, "worker drain": suggestSessions,
		"entity list": o.suggestEntityTypes, "lock list": o.suggestEntityTypes, "cluster drain": suggestNodes, "cluster undrain": suggestNodes,
		"export": o.suggestExecutions, "promise resolve": o.suggestExecutions, "promise reject": o.suggestExecutions,
	}

	for noun, group := range map[string]struct {
		suggest suggestFunc
		verbs   string
	}{
		"workflow": {o.suggestExecutions, "describe explain show steps export fork retry reset delete result signal signal-with-start " +
			"update query state cancel terminate pause resume resolve reject"},
		"workflow signals": {o.suggestExecutions, "show skip drop"},
		"task":             {o.suggestTasks, "show cancel terminate pause resume retry logs stream state"},
		"dlq":              {o.suggestDead, "show requeue undo purge"},
		"queue":            {o.suggestQueues, "show pause resume"},
		"limit":            {o.suggestLimits, "show set delete disable enable"},
		"breaker":          {o.suggestBreakers, "set delete trip reset pause"},
		"tenant":           {suggestTenants, "show set disable enable"},
		"key":              {suggestKeys, "revoke rotate"},
	} {
		for verb := range strings.FieldsSeq(group.verbs) {
			all[noun+" "+verb] = group.suggest
		}
	}

	all["workflow signals"] = o.suggestExecutions
	return all
}

// wordArguments says which words complete the first argument of commands.
var wordArguments = map[string]wordsFunc{"auth check": actionNames, "setting set": settingKinds, "setting delete": settingKinds}

// wordValues says which words complete the values of flags, on every command that has the flag.
var wordValues = map[string]wordsFunc{
	"output": func() []string { return formats }, "status": statusNames, "role": authz.TenantRoles, "profile": knownProfiles,
}

// flagValues says what completes the values of flags, on every command that has the flag.
func (o *options) flagValues() map[string]suggestFunc {
	return map[string]suggestFunc{
		"workflow": o.suggestWorkflows, "activity": o.suggestActivities, "queue": o.suggestQueues, "like": o.suggestExecutions,
		"tenant": suggestTenants, "node": suggestNodes,
	}
}

// completeFunc completes an argument or a value of a flag, as shells ask for it.
type completeFunc = func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective)

// addCompletions lets shells complete arguments and values of flags.
func (o *options) addCompletions(root *cobra.Command) {
	flags := map[string]completeFunc{}
	for name, words := range wordValues {
		flags[name] = wordCompletion(words)
	}
	for name, suggest := range o.flagValues() {
		complete := o.completion(suggest)
		flags[name] = func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
			// prepare does this for arguments
			if err := o.choose(cmd); err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return complete(cmd, args, begin)
		}
	}
	completeFlags(root, flags)

	for path, suggest := range o.arguments() {
		completeArgument(root, path, o.completion(suggest))
	}
	for path, words := range wordArguments {
		completeArgument(root, path, wordCompletion(words))
	}
}

// completeArgument adds a completion of the first argument to a command.
func completeArgument(root *cobra.Command, path string, complete completeFunc) {
	cmd := commandAt(root, path)
	if cmd.ValidArgsFunction != nil {
		panic(fmt.Sprintf("the command %q has a completion", path)) // the table is wrong
	}

	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begin)
	}
}

// completeFlags adds completions of flags to a command and the commands below it. A command may
// also have flags of the commands above it, whose completions exist by then. LocalFlags would leave
// these out, but it takes half of the time in which newRoot makes all commands.
func completeFlags(cmd *cobra.Command, flags map[string]completeFunc) {
	for name, complete := range flags {
		if cmd.Flags().Lookup(name) == nil && cmd.PersistentFlags().Lookup(name) == nil {
			continue
		}
		if _, exists := cmd.GetFlagCompletionFunc(name); exists {
			continue
		}
		if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
			panic(err) // cannot happen: the flag exists, and nothing else completes it
		}
	}
	for _, c := range cmd.Commands() {
		completeFlags(c, flags)
	}
}

// wordCompletion completes words.
func wordCompletion(words wordsFunc) completeFunc {
	return func(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		return fitting(words(), begin), cobra.ShellCompDirectiveNoFileComp
	}
}

// completion asks the store or the server. A completion that fails suggests nothing, because a
// shell has no place for an error. Lists of tenants, keys and nodes concern the whole server, so
// the user's own key may belong to any tenant. The server checks the tenant of every request.
func (o *options) completion(suggest suggestFunc) completeFunc {
	return func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		in := o.own()
		in.any = true
		n, err := o.lookIn(ctx, in)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer n.Close()

		names, err := suggest(ctx, n, begin)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fitting(names, begin), cobra.ShellCompDirectiveNoFileComp
	}
}

// fitting returns the names that begin with a text, in order.
func fitting(names []string, begin string) []string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" || !strings.HasPrefix(name, begin) })
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), mostSuggested)]
}

// knownProfiles are the names of the profiles of the user.
func knownProfiles() []string {
	names, _ := profileNames(nil, nil, "")
	return names
}

func actionNames() (names []string) {
	for _, r := range authz.Table() {
		names = append(names, string(r.Action))
	}
	return names
}

// settingKinds are the kinds of settings that commands may change.
func settingKinds() []string { return []string{"breaker", "limit", "queue"} }

// statusNames are the words of --status.
func statusNames() []string {
	names := []string{"open", "closed"}
	for s := model.Status(1); s <= model.LastStatus; s++ {
		names = append(names, s.String())
	}
	return names
}

// suggestExecutions suggests the executions of a workflow if the text names a workflow, and
// otherwise the newest executions.
func (o *options) suggestExecutions(ctx context.Context, n session, begin string) ([]string, error) {
	return o.suggestRuns(ctx, n, begin, false)
}

// suggestTasks suggests tasks that belong to no workflow.
func (o *options) suggestTasks(ctx context.Context, n session, begin string) ([]string, error) {
	return o.suggestRuns(ctx, n, begin, true)
}

func (o *options) suggestRuns(ctx context.Context, n session, begin string, tasks bool) (names []string, err error) {
	r := api.ListRequest{Tenant: o.tenant, Limit: mostSuggested}
	if workflow, key, ok := strings.Cut(begin, "/"); ok {
		r.Workflows, r.KeyPrefix = []string{workflow}, key
		if tasks {
			r.Workflows[0] = model.TaskPrefix + workflow
		}
	}

	page, err := n.Backend().List(ctx, r)
	for i := range page.Executions {
		s := &page.Executions[i].Start
		if (s.Task != nil) == tasks && !model.IsBuiltIn(s.Address.Type) {
			names = append(names, strings.TrimPrefix(s.Address.Type, model.TaskPrefix)+"/"+s.Address.Key)
		}
	}
	return names, err
}

// ofWorkers returns names that live workers offer.
func (o *options) ofWorkers(ctx context.Context, n session, names func(w *api.WorkerInfo) []string) (all []string, err error) {
	workers, err := n.Backend().ListWorkers(ctx, o.tenant)
	for i := range workers {
		all = append(all, names(&workers[i])...)
	}
	return slices.DeleteFunc(all, model.IsBuiltIn), err
}

func (o *options) suggestWorkflows(ctx context.Context, n session, _ string) ([]string, error) {
	names, err := o.ofWorkers(ctx, n, func(w *api.WorkerInfo) []string { return w.Workflows })
	if err != nil {
		return nil, err
	}
	// A store that no program has open still has executions.
	page, err := n.Backend().List(ctx, api.ListRequest{Tenant: o.tenant, Limit: mostSuggested})
	for i := range page.Executions {
		if s := &page.Executions[i].Start; s.Task == nil && !model.IsBuiltIn(s.Address.Type) {
			names = append(names, s.Address.Type)
		}
	}
	return names, err
}

func (o *options) suggestActivities(ctx context.Context, n session, _ string) ([]string, error) {
	return o.ofWorkers(ctx, n, func(w *api.WorkerInfo) []string { return w.Activities })
}

func (o *options) suggestWorkers(ctx context.Context, n session, begin string) ([]string, error) {
	if strings.HasPrefix(begin, sessionPrefix) {
		return suggestSessions(ctx, n, begin)
	}
	return o.ofWorkers(ctx, n, func(w *api.WorkerInfo) []string { return []string{w.Host, w.Name, w.Node.String()} })
}

func (o *options) suggestEntityTypes(ctx context.Context, n session, _ string) ([]string, error) {
	return o.ofWorkers(ctx, n, func(w *api.WorkerInfo) []string { return entityWords(w.Entities) })
}

func (o *options) suggestQueues(ctx context.Context, n session, _ string) (names []string, err error) {
	list, err := n.Backend().ListQueues(ctx, o.tenant)
	for i := range list.Queues {
		names = append(names, list.Queues[i].Name)
	}
	return names, err
}

func (o *options) suggestDead(ctx context.Context, n session, _ string) (names []string, err error) {
	page, err := n.Backend().ListDead(ctx, api.DeadRequest{Tenant: o.tenant, Limit: mostSuggested})
	for i := range page.Tasks {
		names = append(names, page.Tasks[i].ID.String())
	}
	return names, err
}

func (o *options) suggestReports(ctx context.Context, n session, _ string) (names []string, err error) {
	page, err := n.Backend().ReplayReports(ctx, api.ReplayReportListRequest{Tenant: o.tenant, Limit: mostSuggested})
	for i := range page.Reports {
		names = append(names, page.Reports[i].ID.String())
	}
	return names, err
}

func (o *options) suggestLimits(ctx context.Context, n session, _ string) ([]string, error) {
	return o.limitNames(ctx, n.Backend())
}

func (o *options) suggestBreakers(ctx context.Context, n session, _ string) ([]string, error) {
	return o.breakerNames(ctx, n.Backend())
}

func suggestSessions(ctx context.Context, n session, _ string) (names []string, err error) {
	all, err := n.Admin().WorkerSessions(ctx, "")
	for i := range all {
		names = append(names, all[i].ID)
	}
	return names, err
}

func suggestNodes(ctx context.Context, n session, _ string) (names []string, err error) {
	all, err := n.Admin().Nodes(ctx)
	for i := range all {
		names = append(names, all[i].Host)
	}
	return names, err
}

func suggestTenants(ctx context.Context, n session, _ string) (names []string, err error) {
	all, err := n.Admin().Tenants(ctx)
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names, err
}

func suggestKeys(ctx context.Context, n session, _ string) (names []string, err error) {
	all, err := n.Admin().Keys(ctx, "")
	for i := range all {
		names = append(names, all[i].ID)
	}
	return names, err
}
