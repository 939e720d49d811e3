package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

// The nodes of a database answer commands about schedules. The command line owns nothing.
func TestSchedulesBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	yearly := perdure.NewSchedule("yearly", perdure.Cron("@yearly", ""), shop.Job("lamp"))
	app, err := embedded.Config{AllowUnsafe: true, Name: "shop"}.Open(t.Context(), url, shop, yearly)
	if err != nil {
		t.Fatal(err)
	}

	defer app.Close()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"list --app shop", 0, "yearly"},
		{"show yearly", 0, "@yearly UTC"},
		{"show monthly", 3, "no schedule monthly"},
		{"trigger yearly", 0, "triggered: yearly@"},
		{"trigger yearly -o json", 0, `"key": "yearly@`},
		{"pause yearly --reason inventory", 0, "paused: yearly"},
		{"show yearly", 0, "paused: inventory"},
		{"resume yearly", 0, "resumed: yearly"},
		{"backfill yearly --from 2020-01-01T00:00:00Z --to 2023-01-01T00:00:00Z", 0, "backfill of 3: yearly"},
		{"backfill yearly --from 2023-01-01T00:00:00Z --to 2020-01-01T00:00:00Z", 2, "is not before"},
		{"next yearly -n 1 -o json", 0, "-01-01T00:00:00Z"},
		{"next yearly -n 0", 2, "from 1 to 1000"},
		{"delete yearly", 0, "deleted: yearly"},
		{"resume yearly", 3, "no schedule yearly"},
	} {
		if strings.HasPrefix(c.args, "trigger") || strings.HasPrefix(c.args, "backfill") {
			idle(t, app, yearly)
		}
		out, complaints, code := perdureOn(t, url, append([]string{"schedule"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out+complaints, c.want) {
			t.Errorf("perdure schedule %s: exit %d, %s%s\nwant exit %d, %q", c.args, code, out, complaints, c.code, c.want)
		}
	}
}

// idle waits until no run of the schedule is open.
func idle(t *testing.T, app *perdure.App, s *perdure.Schedule) {
	t.Helper()
	for {
		info, err := s.Describe(app.With(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Open) == 0 {
			return
		}
	}
}

// The commands store, show and compare all settings of a task in a schedule file.
func TestTasksOfAScheduleFile(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "x.db")
	do := on(t, url)
	do("", 0, "migrate")

	apply := func(want, lines string, args ...string) {
		t.Helper()
		name := filepath.Join(t.TempDir(), "schedules.yaml")
		if err := os.WriteFile(name, []byte("app: ops\nschedules:\n  - {name: tidy, cron: '@yearly', activity: clean"+lines+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		do(want+": tidy", 0, append([]string{"schedule", "apply", "-f", name}, args...)...)
	}

	apply("created", "")
	apply("unchanged", ", queue: default, limits: [], retry: {except: []}")
	do("task clean on queue default", 0, "schedule", "show", "tidy")
	do("no limit", 0, "schedule", "show", "tidy")

	all := ""
	for _, c := range []struct{ line, shown string }{
		{"queue: low", "on queue low"},
		{"priority: 7", "Priority            7"},
		{"fair_key: ann", "ann, weight 1"},
		{"fair_weight: 2", "ann, weight 2"},
		{"delay: 5s", "Delay               5s"},
		{"attempts: 4", "Attempts            4"},
		{"retry: {initial: 2s, max: 90s, coefficient: 1.5, jitter: 0.1, except: [panic, canceled]}", "4, first pause 2s, each times 1.5, at most 1m30s, jitter 0.1, none after canceled, panic"},
		{"limits: [disk, cpu]", "cpu, disk"},
		{"breaker: files", "files"},
		{"schedule_to_start: 1h", "1h0m0s"},
		{"attempt_timeout: 10m", "10m0s"},
		{"heartbeat_timeout: 30s", "30s"},
		{"schedule_to_close: 2h", "2h0m0s"},
	} {
		all += ", " + c.line
		apply("changed", all, "--dry-run")
		apply("changed", all)
		apply("unchanged", all)
		if out := strings.Join(strings.Fields(do("", 0, "schedule", "show", "tidy")), " "); !strings.Contains(out, strings.Join(strings.Fields(c.shown), " ")) {
			t.Errorf("after %s it shows %s, want %q", c.line, out, c.shown)
		}
	}

	var shown struct {
		Spec struct {
			Job struct{ Task json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(do("", 0, "schedule", "show", "tidy", "-o", "json")), &shown); err != nil {
		t.Fatal(err)
	}

	task := strings.Trim(strings.TrimSpace(string(shown.Spec.Job.Task)), "{}") // every JSON text is also YAML
	apply("unchanged", ", "+task, "--dry-run")
	apply("changed", strings.Replace(all, "jitter: 0.1", "jitter: 0.2", 1), "--dry-run")
	do("triggered: tidy@", 0, "schedule", "trigger", "tidy")
	// The command may have ended before the task started, so the program starts it.
	app, err := embedded.Open(t.Context(), url, shop)
	if err != nil {
		t.Fatal(err)
	}

	for begun := false; !begun; {
		for _, err := range app.Executions().List(t.Context(), `workflow = "task:clean"`) {
			if begun = true; err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	list := do("", 0, "task", "list", "--activity", "clean", "--queue", "low", "-o", "json")
	if !strings.Contains(list, `"key": "tidy@`) {
		t.Errorf("it began %s", list)
	}
}
