package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// aliases are other names of commands: the plural of every noun, and verbs that people know from
// other tools. docs/cli.md lists them.
var aliases = map[string][]string{
	"workflow": {"wf", "workflows", "execution", "executions"}, "schedule": {"sched", "schedules"}, "task": {"tasks", "activity", "activities"},
	"batch": {"batches"}, "replay-report": {"replay-reports"}, "queue": {"queues"}, "dlq": {"dead-task", "dead-tasks"}, "limit": {"limits"}, "breaker": {"breakers"}, "worker": {"workers"},
	"entity": {"entities"}, "lock": {"locks"}, "promise": {"promises"}, "tenant": {"tenants"}, "key": {"keys"}, "node": {"nodes"}, "setting": {"settings"}, "config": {"profile", "profiles"},

	"workflow resume": {"unpause"}, "task resume": {"unpause"}, "schedule resume": {"unpause"}, "queue resume": {"unpause"},
	"task show": {"describe"}, "batch show": {"describe"}, "replay-report show": {"describe"}, "queue show": {"describe"}, "dlq show": {"describe"}, "entity show": {"describe", "get"}, "limit show": {"describe"},
	"schedule show": {"describe"}, "tenant show": {"describe"}, "worker describe": {"show"}, "entity send": {"signal"}, "deploy-check": {"verify"}, "schedule next": {"list-matching-times"},
	"lock waiters": {"describe", "show"}, "batch cancel": {"stop"}, "dlq requeue": {"redrive"}, "entity log": {"history"}, "workflow stranded": {"stuck"},
	"workflow explain": {"stack"}, "breaker pause": {"pause-until"},
}

// addAliases adds the other names to the commands.
func addAliases(root *cobra.Command) {
	for path, names := range aliases {
		commandAt(root, path).Aliases = names
	}
}

// commandAt returns the command with a path such as "task list". Find of cobra would also collect
// the flags of all commands on the way, at each start of the program.
func commandAt(root *cobra.Command, path string) *cobra.Command {
	cmd := root
	for word := range strings.FieldsSeq(path) {
		all := cmd.Commands()
		i := slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == word })
		if i < 0 {
			panic(fmt.Sprintf("there is no command %q", path)) // the table is wrong
		}
		cmd = all[i]
	}
	return cmd
}
