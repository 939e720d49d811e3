package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Scripts rely on the exit code. It is 2 for wrong usage, whether the library or the command
// detects it. An error repeats names as the user typed them.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	do := on(t, "file:"+filepath.Join(t.TempDir(), "x.db"))
	do("Try --help", 2, "nonsense")
	do(`unknown command "nonsense" for "perdure task"`, 2, "task", "nonsense")
	do("Try --help", 2, "task", "show")
	do("Try --help", 2, "task", "list", "--nonsense")
	do("Try --help", 2, "breaker", "pause", "bank")
	do("Try --help", 2, "schedule", "backfill", "nightly", "--from", "2026-11-01T00:00:00Z")
	do("Submit, list, show and change tasks", 0, "task")
	do("x.db does not exist", 3, "task", "show", "Mail/Ann")
}

// An error about arguments says how the command is used, and names the nearest known name.
func TestWrongUsageNamesTheRightOne(t *testing.T) {
	t.Parallel()
	do := on(t, "file:"+filepath.Join(t.TempDir(), "x.db"))
	for want, args := range map[string][]string{
		"describe does not work with 0 arguments; usage: perdure workflow describe w": {"workflow", "describe"},
		"describe does not work with 2 arguments; usage: perdure workflow describe w": {"workflow", "describe", "a/b", "c"},
		`list does not work with the argument "extra"; usage: perdure node list`:      {"node", "list", "extra"},
		`unknown command "workfow" for "perdure"; did you mean workflow?`:             {"workfow", "list"},
		`unknown command "descrbe" for "perdure workflow"; did you mean describe?`:    {"workflow", "descrbe", "a/b"},
		"unknown flag: --querry; did you mean --query?":                               {"workflow", "list", "--querry", "x"},
		"signal needs either workflow/key name, or --query q name":                    {"workflow", "signal"},
	} {
		do(want, 2, args...)
	}
}

// Impossible numbers and times are wrong usage and change nothing. For example, a negative --older
// does not purge new tasks.
func TestNumbersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	do := on(t, deadTasks(t))
	state := func() (all []string) {
		for _, what := range []string{"dlq", "schedule", "limit", "breaker", "workflow", "queue"} {
			all = append(all, do("", 0, what, "list", "-o", "json"))
		}
		return all
	}

	before := state()
	file := func(lines string) string {
		name := filepath.Join(t.TempDir(), "schedules.yaml")
		if err := os.WriteFile(name, []byte("app: ops\nschedules:\n  - {name: fine, every: 1h, workflow: report}\n  - {name: odd, workflow: report, "+lines+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}

	task := func(lines string) []string {
		return []string{"schedule", "apply", "-f", file("every: 1h}\n  - {name: task, every: 1h, activity: letter, " + lines)}
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--older", []string{"dlq", "purge", "--older", "-720h", "--activity", "letter", "--yes"}},
		{"--older", []string{"dlq", "purge", "--older", "0s", "--activity", "letter", "--yes"}},
		{"--older", []string{"dlq", "purge", "--older", "9999999h9999999h", "--yes"}},
		{"--until", []string{"dlq", "purge", "--until", "-1h", "--yes"}},
		{"--since", []string{"dlq", "requeue", "--since", "-1h", "--yes"}},
		{"per second", []string{"dlq", "requeue", "--all", "--rate", "-1", "--yes"}},
		{"per second", []string{"dlq", "requeue", "--all", "--rate", "NaN", "--yes"}},
		{"per second", []string{"dlq", "requeue", "--all", "--rate", "Inf", "--yes"}},
		{"per second", []string{"dlq", "requeue", "--all", "--rate", "1e-300", "--yes"}},
		{"--timeout", []string{"dlq", "requeue", "--all", "--timeout", "-1s", "--yes"}},
		{"--limit", []string{"dlq", "list", "--limit", "-1"}},
		{"--limit", []string{"task", "list", "--limit", "99999999999999999999"}},
		{"--limit", []string{"workflow", "list", "--limit", "-5"}},
		{"delay", []string{"task", "submit", "letter", "--delay", "-1s"}},
		{"delay", []string{"task", "submit", "letter", "--delay", "2000000h"}},
		{"attempt time-out", []string{"task", "submit", "letter", "--attempt-timeout", "-1s"}},
		{"attempts", []string{"task", "submit", "letter", "--attempts", "-1"}},
		{"priority", []string{"task", "submit", "letter", "--priority", "9000000000"}},
		{"--timeout", []string{"task", "submit", "letter", "--timeout", "0s"}},
		{"--timeout", []string{"workflow", "start", "wf", "--key", "k", "--timeout", "-1s"}},
		{"concurrency", []string{"limit", "set", "l", "--concurrency", "-1"}},
		{"rate", []string{"limit", "set", "l", "--rate", "-5/1m"}},
		{"rate", []string{"limit", "set", "l", "--rate", "5/-1m"}},
		{"rate", []string{"limit", "set", "l", "--rate", "5/9999999h"}},
		{"burst", []string{"limit", "set", "l", "--rate", "5/1m", "--burst", "-1"}},
		{"ratio", []string{"breaker", "set", "b", "--ratio", "NaN"}},
		{"ratio", []string{"breaker", "set", "b", "--ratio", "1.5"}},
		{"window", []string{"breaker", "set", "b", "--window", "-1s"}},
		{"reset", []string{"breaker", "set", "b", "--reset", "2000000h"}},
		{"--for", []string{"breaker", "pause", "b", "--for", "-1h"}},
		{"--until", []string{"breaker", "pause", "b", "--until", "someday"}},
		{"-n", []string{"schedule", "next", "--cron", "@daily", "-n", "-1"}},
		{"positive", []string{"schedule", "next", "--every", "-1h"}},
		{"never fires", []string{"schedule", "next", "--cron", "0 0 30 2 *"}},
		{"zone", []string{"schedule", "next", "--cron", "@daily", "--zone", "Mars/Base"}},
		{"zone", []string{"schedule", "apply", "-f", file("every: 1h, zone: Mars/Base")}},
		{"contains a slash", []string{"workflow", "start", "a/b", "--key", "k"}},
		{"reserved for Perdure", []string{"workflow", "start", "perdure.x", "--key", "k"}},
		{"reserved for Perdure", []string{"workflow", "start", "perdure.send", "--key", "k"}},
		{"one half of a character", []string{"workflow", "start", "wf", "--key", "k", "--input", `"\ud800"`}},
		{"minute", []string{"schedule", "apply", "-f", file("cron: '61 * * * *'")}},
		{"zone", []string{"schedule", "apply", "-f", file("cron: '0 0 * * *', zone: Mars/Base")}},
		{"interval", []string{"schedule", "apply", "-f", file("every: -1h")}},
		{"jitter", []string{"schedule", "apply", "-f", file("every: 1h, jitter: -1s")}},
		{"catch-up", []string{"schedule", "apply", "-f", file("every: 1h, catch_up: 1ns")}},
		{"time", []string{"schedule", "apply", "-f", file("every: 1h, start_at: 99999-01-01T00:00:00Z")}},
		{"queue: only allowed with activity", []string{"schedule", "apply", "-f", file("every: 1h, queue: low")}},
		{"attempts, retry: only allowed with activity", []string{"schedule", "apply", "-f", file("every: 1h, attempts: 3, retry: {jitter: 0.1}")}},
		{"its queue \"a\\nb\" is not the name", task(`queue: "a\nb"`)},
		{"its priority is 9000000", task("priority: 9000000")},
		{"its fair_key", task(`fair_key: "\u0001"`)},
		{"its fair_weight is -1", task("fair_weight: -1")},
		{"its delay is -1s", task("delay: -1s")},
		{"its delay is 2h0m0s, and its schedule_to_close is 1h0m0s", task("delay: 2h, schedule_to_close: 1h")},
		{"its attempts is -1", task("attempts: -1")},
		{"its retry.initial is -1s", task("retry: {initial: -1s}")},
		{"its retry.initial is 2s, and its retry.max is 1s", task("retry: {initial: 2s, max: 1s}")},
		{"its retry.coefficient is 0.5", task("retry: {coefficient: 0.5}")},
		{"its retry.coefficient is", task("retry: {coefficient: .inf}")},
		{"its retry.jitter is 1.5", task("retry: {jitter: 1.5}")},
		{"its retry.jitter is", task("retry: {jitter: .nan}")},
		{"its retry.except: \"\" is not the name", task("retry: {except: ['']}")},
		{"its limits: \"\" is not the name", task("limits: [a, '']")},
		{"its number of limits is 9", task("limits: [a, b, c, d, e, f, g, h, i]")},
		{"its breaker", task(`breaker: "\u0001"`)},
		{"its schedule_to_start is -1s", task("schedule_to_start: -1s")},
		{"its attempt_timeout is 2000000h0m0s", task("attempt_timeout: 2000000h")},
		{"its heartbeat_timeout is 1ms", task("heartbeat_timeout: 1ms")},
		{"its schedule_to_close is -1s", task("schedule_to_close: -1s")},
		{"--failure-rate", []string{"stress", "--failure-rate", "NaN"}},
		{"--latency", []string{"stress", "--latency", "-1s"}},
	} {
		do(c.want, 2, c.args...)
	}

	if after := state(); !slices.Equal(after, before) {
		t.Errorf("something was changed:\n%s\n  and before\n%s", after, before)
	}
}
