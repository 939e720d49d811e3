package cli

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

var update = flag.Bool("update", false, "write golden files")

// ran is the result of a command.
type ran struct {
	out, complaints string
	code            int
}

// runOn runs a command that gets its answers from p, on a terminal of the given width. A width of 0
// stands for a pipe.
func runOn(t *testing.T, p *prepared, width int, args ...string) ran {
	t.Helper()
	var out, complaints bytes.Buffer
	o := &options{Streams: Streams{In: strings.NewReader(""), Out: &out, Err: &complaints, Width: width}, connect: connectTo(p)}
	code := o.run(t.Context(), append([]string{"--store", "postgres://prepared"}, args...))
	return ran{out.String(), complaints.String(), code}
}

var (
	deadStep = api.DeadID{Tenant: model.DefaultTenant, Shard: 7, Run: runOf(1), Task: "/charge:1"}.String()
	deadTask = api.DeadID{Tenant: model.DefaultTenant, Shard: 7, Run: runOf(2), Task: model.TaskStep}.String()
)

// looks are the commands that only read and print.
var looks = []string{
	"workflow list", "workflow stranded", "workflow describe order/42", "workflow describe order/" + hashA, "workflow explain order/42", "workflow explain order/" + hashA, "workflow show order/42", "workflow steps order/42", "workflow signals order/42",
	"task list", "task show mail/" + uuidA, "task state mail/" + uuidA, "task logs mail/" + uuidA, "task stream mail/" + uuidA,
	"dlq list", "dlq groups", "dlq show " + deadStep,
	"queue list", "queue show mails", "worker list", "worker versions", "worker describe shop-1.example.com:4711", "worker describe session_K7X2M9", "promise list",
	"batch list", "batch show " + uuidA, "batch show night", "replay-report list", "replay-report show " + model.ReportID(runOf(7)).String(),
	"schedule list", "schedule show nightly", "schedule next nightly --after 2026-11-15T12:00:00Z", "schedule next --cron @daily --zone Europe/Berlin --after 2026-11-15T12:00:00Z",
	"entity list", "entity show account/eu-1", "entity mailbox account/eu-1", "entity log account/eu-1", "lock list", "lock waiters account/eu-1",
	"limit list", "limit show customers", "breaker list", "breaker list --rules",
	"tenant list", "tenant show acme", "key list", "node list", "cluster nodes", "cluster shards", "cluster groups", "cluster rebalance --dry-run", "worker sessions", "setting list", "audit list", "auth actions",
}

// printers are tables of commands that read more than the test can prepare.
var printers = map[string]func(o *options) error{
	"doctor": func(o *options) error {
		return o.printFindings([]finding{{"schema", "ok", "version 8, 64 shards"}, {"executions", "warning", "3 of 12 open ones cannot go on, such as order/" + hashA + " " + prose}})
	},
	"stress": func(o *options) error {
		return o.printStress(&stressReport{Workflows: 1000, Failed: 10, Seconds: 1.25, PerSecond: 800, P50: 1.5, P99: 12.25, FailedPart: 1, Concurrent: 64, Workers: 100})
	},
	"version": func(o *options) error {
		return o.printBuild(&build{"v1.4.2", "5527f41c0ffee", true, "go1.26.8", "linux/amd64", map[string]int{"file": 8, "postgres": 10}})
	},
	"deploy-check": func(o *options) error {
		c := deployCheck{report: deployReport{Replayed: 12, Fit: 11, Version: "v1.4.2", Report: model.ReportID(runOf(7)).String(), LeftOut: 4, Absent: map[string]int{"report": 3}, Mismatches: []deployMismatch{
			{Workflow: "order", Key: hashA, Run: runOf(2).String(), Status: "running", Events: 12, Event: 3, Error: prose},
		}}}
		if err := c.tell(o); err == nil {
			return errors.New("a mismatch is no error")
		}
		return nil
	},
	"migrate": func(o *options) error {
		was := node.SchemaStatus{URL: "postgres://db/app", Version: 15, Latest: 15, Shards: 64, Pending: []string{}}
		now := was
		now.Shards, now.Groups = 160, "gpu=64,video=32"
		return o.printMigration(&migration{was, now, false})
	},
	"migrate status": func(o *options) error {
		return o.printSchema(&node.SchemaStatus{URL: "postgres://app:secret@db/app", Version: 14, Latest: 16, Shards: 160, Groups: "gpu=64,video=32", Pending: []string{"0015_groups", "0016_remote_workers"}, Databases: []node.DatabaseStatus{
			{Name: "frankfurt", Groups: []string{"gpu", "video"}, URL: "postgres://eu/app", Version: 14, Pending: []string{"0015_groups"}, Problem: "database frankfurt has version 14 of the schema, and this build needs 16"},
		}})
	},
	"workflow steps": func(o *options) error {
		return o.printSteps(stepsOf(stepEvents, []api.Timer{{ID: "/sleep:1", Due: after(time.Hour)}}))
	},
	"entity patch --dry-run": func(o *options) error {
		return o.printDifference([]difference{{"/cents", "changed", 5, 7}, {Path: "/note", Change: "added", After: prose}, {Path: "/limits/eu", Change: "removed", Before: []int{1, 2}}})
	},
	"bench": func(o *options) error { return o.printBench(benchReport()) },
}

func capture(t *testing.T, width int, output string, do func(o *options) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := do(&options{Streams: Streams{Out: &out, Err: &out, Width: width}, output: output}); err != nil {
		t.Error(err)
	}
	return out.String()
}

// Every table matches its golden file at three widths. No line is wider than the terminal, tables
// mark what they cut, and --wide shows everything.
func TestTables(t *testing.T) {
	t.Parallel()
	p := &prepared{}
	for _, width := range []int{80, 120, 200} {
		var all strings.Builder
		check := func(what, out string) {
			fmt.Fprintf(&all, "$ perdure %s\n%s\n", what, out)
			for line := range strings.Lines(out) {
				if w := ansi.StringWidth(strings.TrimSuffix(line, "\n")); w > width {
					t.Errorf("perdure %s at %d columns: a line has %d: %s", what, width, w, line)
				}
			}
		}
		for _, args := range looks {
			r := runOn(t, p, width, strings.Fields(args)...)
			if r.code != 0 {
				t.Errorf("perdure %s: exit %d: %s", args, r.code, r.complaints)
			}
			check(args, r.out+r.complaints)
		}

		for _, name := range slices.Sorted(maps.Keys(printers)) {
			if name != "bench" { // it writes Markdown, which has no width
				check(name, capture(t, width, "table", printers[name]))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(configPrinters)) {
			check(name, capture(t, width, "table", configPrinters[name]))
		}

		golden(t, fmt.Sprintf("tables-%d.txt", width), all.String())
	}
}

// The golden files have every table that a command prints. The test recognizes a table by its first
// two headings.
func TestEveryTableIsGolden(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "golden", "tables-200.txt"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}

	heads := regexp.MustCompile(`\.table\("([^"]+)"`)
	found := 0
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range heads.FindAllSubmatch(source, -1) {
			found++
			cells := strings.Split(strings.ReplaceAll(string(m[1]), "?", ""), `\t`)
			line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(cells[0]) + ` +` + regexp.QuoteMeta(cells[1]))
			if !line.Match(text) {
				t.Errorf("%s: no golden file has the table %s", name, m[1])
			}
		}
	}
	if found < 25 {
		t.Errorf("only %d tables", found)
	}
}

// Pipes, --wide and --full get everything: no cut and no dropped column.
func TestTablesWhole(t *testing.T) {
	t.Parallel()
	p := &prepared{}
	for _, args := range looks {
		fields := strings.Fields(args)
		pipe := runOn(t, p, 0, fields...)
		if strings.Contains(pipe.out, cutMark+" ") || strings.Contains(pipe.complaints, "Columns not shown") {
			t.Errorf("perdure %s | cat: something is cut:\n%s%s", args, pipe.out, pipe.complaints)
		}
		if full := runOn(t, p, 80, append(fields, "--full")...); full.out != pipe.out {
			t.Errorf("perdure %s --full: %s", args, cmp.Diff(pipe.out, full.out))
		}
		wide := runOn(t, p, 80, append(fields, "--wide")...)
		if strings.Contains(wide.complaints, "Columns not shown") || strings.Count(wide.out, "\n") != strings.Count(pipe.out, "\n") {
			t.Errorf("perdure %s --wide: something is left out:\n%s%s", args, wide.out, wide.complaints)
		}
	}

	if r := runOn(t, p, 0, "workflow", "show", "order/42"); !strings.Contains(r.out, longText) {
		t.Errorf("a long input in a pipe: %s", r.out)
	}
	if r := runOn(t, p, 80, "workflow", "describe", "order/42"); !strings.Contains(r.out, "--full") {
		t.Errorf("a long input on a terminal does not name --full: %s", r.out)
	}
}

// golden compares a text with a file, or writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-update writes it): %s", name, diff)
	}
}

// acts are the commands that change something, and some commands that only read, by the name that
// the documentation has for their output.
var acts = map[string]string{
	"workflow count": "", "workflow start": "order --key k --wait", "workflow execute": "order --key k", "workflow result": "order/42", "promise resolve": "order/42 answer", "promise reject": "order/42 answer --message no", "workflow signal": "order/42 approved", "workflow signal-with-start": "order/42 approved", "workflow resolve": "order/42 answer", "workflow reject": "order/42 answer --message no",
	"workflow signals show": "order/42 7-3f9a0c41d2e7", "workflow signals skip": "order/42 7-3f9a0c41d2e7", "workflow signals drop": "order/42 7-3f9a0c41d2e7",
	"workflow cancel": "order/42", "workflow terminate": "order/42", "workflow pause": "order/42", "workflow resume": "order/42",
	"workflow update": "order/42 add", "workflow query": "order/42 sum", "workflow state": "order/42 sum", "workflow fork": "order/42 --key k",
	"workflow retry": "order/42", "workflow reset": "order/42 --to 3", "workflow delete": "order/42 --yes",
	"batch start": "cancel --query status='open' --yes", "batch cancel": uuidA,
	"task submit": "mail", "task cancel": "mail/" + uuidA, "task terminate": "mail/" + uuidA, "task pause": "mail/" + uuidA, "task resume": "mail/" + uuidA, "task retry": "mail/" + uuidA,
	"task state NAME": "mail/" + uuidA + " cursor",
	"dlq requeue":     deadTask, "dlq requeue --all": "--yes", "dlq undo": deadTask, "dlq purge": deadTask, "queue pause": "mails", "queue resume": "mails",
	"schedule pause": "nightly", "schedule resume": "nightly", "schedule trigger": "nightly", "schedule delete": "nightly",
	"schedule backfill": "nightly --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z", "schedule apply": "-f testdata/schedules.yaml --dry-run",
	"entity mailbox show": "account/eu-1 7-3f9a0c41d2e7", "entity mailbox skip": "account/eu-1 7-3f9a0c41d2e7", "entity mailbox drop": "account/eu-1 7-3f9a0c41d2e7",
	"entity call": "account/eu-1 deposit", "entity send": "account/eu-1 deposit", "entity delete": "account/eu-1 --force --dry-run", "entity edit": "account/eu-1 --version 3 --state 5", "entity patch": "account/eu-1 --patch {\"cents\":5}", "entity patch --dry-run": "account/eu-1 --patch {\"cents\":5,\"note\":1,\"text\":null}", "entity interrupt": "account/eu-1", "lock release": "account/eu-1 --force",
	"limit set": "smtp --concurrency 5", "limit delete": "smtp", "limit disable": "smtp --reason quota", "limit enable": "smtp", "breaker set": "bank --failures 3", "breaker delete": "bank", "breaker trip": "bank", "breaker reset": "bank", "breaker pause": "bank --for 1h",
	"tenant create": "acme --open 10000", "tenant set": "acme --starts 5", "tenant disable": "acme", "tenant enable": "acme", "key create": "--note ci", "key revoke": "k3v9x2m7q1ab", "key rotate": "k3v9x2m7q1ab --overlap 1h", "auth check": "execution:start --role client",
	"cluster drain": "shop-3.example.com", "cluster undrain": "shop-3.example.com:4713",
	"worker drain": "session_K7X2M9", "setting set": "limit smtp --input {}", "setting delete": "limit smtp --version 17",
	"workflow import": "-f testdata/order.jsonl", "replay-report add": "-f testdata/report.json", "migrate": "--store file:testdata/none.db --dry-run",
}

// failing are the commands of acts that fail and report the failure in JSON, with their exit codes.
var failing = map[string]int{"workflow start": 1, "workflow execute": 1, "workflow result": 1, "dlq requeue --all": 4}

// The output of every command has the shape that docs/cli-json.md documents, field by field.
func TestShapes(t *testing.T) {
	t.Parallel()
	s, p := readShapes(t), &prepared{}
	tried := map[string]bool{}
	check := func(command string, out []byte) {
		t.Helper()
		tried[command] = true
		if err := s.check(command, out); err != nil {
			t.Errorf("perdure %s -o json: %v:\n%s", command, err, out)
		}
	}
	try := func(p *prepared, command, args string) {
		t.Helper()
		words := strings.Fields(strings.TrimSuffix(command, " NAME") + " " + args)
		r := runOn(t, p, 80, append(words, "-o", "json")...)
		if r.code != failing[command] {
			t.Errorf("perdure %s: exit %d: %s", strings.Join(words, " "), r.code, r.complaints)
		}
		check(command, []byte(r.out))
	}

	for command, args := range acts {
		try(p, command, args)
	}
	for verb, more := range map[string]string{"signal": "approved", "cancel": "", "terminate": "", "pause": "", "resume": "", "retry": "", "reset": "--to 3", "delete": ""} {
		try(p, "workflow "+verb+" --query", "status='open' --yes --detach "+more)
		try(p, "workflow "+verb+" --dry-run --query", "status='open' "+more)
	}
	for _, line := range looks {
		words := strings.Fields(line)
		command := strings.Join(words[:2], " ")
		if line == "breaker list --rules" {
			command = line
		}
		try(p, command, strings.TrimPrefix(line, command))
		if strings.HasSuffix(command, "list") || strings.HasSuffix(line, "--rules") || command == "dlq groups" || command == "task logs" || command == "task stream" || command == "task state" || command == "worker sessions" || command == "worker versions" {
			// An empty list is [], not null.
			try(&prepared{empty: true}, command, strings.TrimPrefix(line, command))
		}
	}
	try(p, "workflow describe", "order/"+hashB)
	many := filepath.Join(t.TempDir(), "many.jsonl")
	if err := os.WriteFile(many, []byte(`{"workflow":"order","key":"1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	try(p, "workflow start --many", many)
	try(p, "workflow delete", "order/42 --force --yes --export "+filepath.Join(t.TempDir(), "order.jsonl"))
	try(p, "entity delete", "account/42 --force --yes --export "+filepath.Join(t.TempDir(), "account.jsonl"))
	try(p, "workflow export --query", "status='closed' --out "+t.TempDir())
	try(p, "export --query", "status='closed' --out "+t.TempDir())
	for name, do := range printers {
		check(name, []byte(capture(t, 80, "json", do)))
	}
	for name, do := range configPrinters {
		check(name, []byte(capture(t, 80, "json", do)))
	}
	for _, c := range []api.Change{
		{
			Class: model.ClassTask, Kind: model.ChangeFailed, Address: addressOf("order", "42"), Run: runOf(1), Task: "pay", Name: "pay", Queue: "bank",
			Status: model.Failed, Reason: model.WaitRetry, Seq: 3, At: noon,
		},
		{Class: model.ClassEntity, Kind: model.ChangeChanged, Address: addressOf("entity:account", "42"), Locked: true, At: noon},
		{Class: model.ClassSetting, Kind: model.ChangePaused, Of: "queue", Name: "mails", At: noon},
	} {
		check("watch", []byte(capture(t, 80, "json", func(o *options) error { return o.printChange(&c) })))
	}
	// The command needs a program that has the file open, or a server.
	check("entity stream", []byte(capture(t, 80, "json", func(o *options) error {
		return o.printItems(t.Context(), p, api.CallRequest{Name: "rows"})
	})))
	for command, typ := range s.commands {
		if !tried[command] && typ != "none" {
			t.Errorf("perdure %s is documented and was not tried", command)
		}
	}
	if fields := s.unseen(); len(fields) > 0 {
		t.Errorf("documented, and no command had them: %v", fields)
	}
}

// A command without a documented shape fails the test.
func TestEveryCommandHasAShape(t *testing.T) {
	t.Parallel()
	s := readShapes(t)
	var walk func(c *cobra.Command, words string)
	walk = func(c *cobra.Command, words string) {
		for _, sub := range c.Commands() {
			path := strings.TrimSpace(words + " " + sub.Name())
			if sub.HasSubCommands() {
				walk(sub, path)
			} else if _, ok := s.commands[path]; !ok {
				t.Errorf("docs/cli-json.md has no shape of perdure %s", path)
			}
		}
	}
	walk(newRoot(&options{}), "")
}

// A user may shorten an id to an unambiguous beginning, or to the form that tables show, such as
// 441…5a6b7c. If people chose the key, only the form of a table works.
func TestAbbreviations(t *testing.T) {
	t.Parallel()
	p := &prepared{}

	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"workflow describe order/44136fa3", 0, hashA},
		{"workflow describe order/44136fb0", 0, hashB},
		{"workflow describe order/" + hashA, 0, hashA},
		{"workflow describe order/44136f", 2, "ambiguous: order/" + hashA + ", order/" + hashB},
		{"workflow describe order/44136", 3, "does not exist"}, // too short for an abbreviation
		{"workflow describe order/44136fc0", 3, "does not exist"},
		{"workflow describe order/4", 3, "does not exist"}, // the key is not completed to order/42
		{"workflow describe order/44136fa3…aaff8a", 0, hashA},
		{"workflow describe order/441…5a6b7c", 0, hashB},
		{"workflow describe order/441…", 2, "ambiguous"},
		{"workflow describe order/4…", 2, "order/42, order/" + hashA},
		{"workflow describe order/9…", 3, "there is no execution order/9…"},
		{"workflow cancel order/44136fa3", 0, "cancel requested: order/" + hashA},
		{"workflow cancel order/44136f", 2, "ambiguous"},
		{"workflow signal order/441…5a6b7c approved", 0, "signal sent: order/" + hashB},
		{"workflow resolve order/44136fb0 answer", 0, "of order/" + hashB},
		{"workflow show order/42 --run " + runOf(1).String()[:12], 0, "lamp"},
		{"workflow cancel order/42 --run " + runOf(1).String()[:12] + " -o json", 0, runOf(1).String()},
		{"workflow show order/42 --run run_0zzzzzzz", 3, "order/42: there is no run run_0zzzzzzz"},
		{"workflow show order/42 --run run_06", 2, "26 characters"},
		{"task show mail/0193f2", 0, uuidA},
		{"task cancel mail/0193f2c1…050607", 0, uuidA},
		{"task logs mail/0193f2c1", 0, "late"},
		{"dlq show " + deadTask[:12], 2, "ambiguous: " + deadStep + ", " + deadTask},
		{"dlq show dead_7_069z5…nZTox", 0, deadStep},
		{"dlq requeue dead_7_069z5…18608 -o json", 0, deadTask},
		{"dlq undo dead_7_069z5…18608", 0, deadTask},
		{"dlq purge dead_7_069z5…18608", 0, deadTask},
		{"dlq show " + strings.TrimSuffix(deadStep, "_L2NoYXJnZTox"), 0, deadStep},
		{"dlq show dead_9_069z5g", 3, "there is no dead task dead_9_069z5g"},
		{"dlq show dead_", 2, "is not the id of a dead task"},
		{"dlq list --fingerprint 468743", 0, deadTask},
		{"dlq list --fingerprint 4687…63", 0, deadTask},
		{"dlq list --fingerprint 46874 -o json", 0, "[]"}, // too short for an abbreviation
		{"dlq list --fingerprint 46874f -o json", 0, "[]"},
		{"dlq list --fingerprint 99…", 3, "there is no fingerprint 99…"},
		{"entity show account/eu…", 0, "account/eu-1"},
		{"entity show account/e…1", 0, "account/eu-1"},
		{"entity show account/…-1", 2, "ambiguous: account/eu-1, account/us-1"},
		{"entity send account/…-1 deposit", 2, "ambiguous"},
		{"entity send account/eu…1 deposit", 0, "sent deposit to account/eu-1"},
		{"entity show account/eu", 3, "does not exist"},
		{"lock release account/eu… --force", 0, "account/eu-1"},
		{"worker drain session_K7X2M9QF…4EGJKN", 0, "asked to drain worker session_K7X2M9QFH3T5RSWZ1BCD4EGJKN"},
		// This id is too short for an abbreviation.
		{"worker drain session_K7X2", 3, "there is no worker session_K7X2"},
		{"worker drain session_…", 2, "ambiguous"},
		{"key revoke k3v9x2", 0, "revoked key k3v9x2m7q1ab"},
		{"key revoke nothing", 3, "there is no key nothing"},
	} {
		r := runOn(t, p, 0, strings.Fields(c.args)...)
		if text := strings.Join(strings.Fields(r.out+r.complaints), " "); r.code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("perdure %s: exit %d, want %d and %q:\n%s%s", c.args, r.code, c.code, c.want, r.out, r.complaints)
		}
	}
}

// A command uses an existing key as it is, even if the key is also the beginning of a hash. It does
// not complete the beginning of a key that people chose.
func TestKeysThatLookLikeHashes(t *testing.T) {
	t.Parallel()
	p := &prepared{twins: true}
	for args, want := range map[string]string{
		"workflow cancel order/44136fa355": "cancel requested: order/44136fa355\n",
		"workflow cancel order/44136fa35":  "cancel requested: order/" + hashA + "\n",
		// The command does not complete the key, and the owner would report that it does not exist.
		"workflow cancel order/123456":        "cancel requested: order/123456\n",
		"workflow cancel order/123456…":       "cancel requested: order/123456-eu\n",
		"workflow cancel order/44136fa355…8a": "cancel requested: order/" + hashA + "\n",
	} {
		if r := runOn(t, p, 0, strings.Fields(args)...); r.out != want {
			t.Errorf("perdure %s: %s%s, want %s", args, r.out, r.complaints, want)
		}
	}
}

// An unknown name of a limit or a breaker is an error that lists the known names.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	p := &prepared{}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"breaker trip carrier", 0, "tripped breaker carrier"}, // an activity names it
		{"breaker trip typo --any-name", 0, "tripped breaker typo"},
		{"breaker pause typo --for 1h --any-name", 0, "paused breaker typo"},
		{"limit show typo", 3, "there is no limit typo (known limits: customers, smtp)"},
		{"limit set typo --concurrency 1", 0, "No activity of a live worker names limit typo; known names of limits in activities: smtp."},
		{"limit set later --queue mails --concurrency 1", 0, "set limit later"},
	} {
		r := runOn(t, p, 0, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.out+r.complaints, c.want) {
			t.Errorf("perdure %s: exit %d, want %d and %q:\n%s%s", c.args, r.code, c.code, c.want, r.out, r.complaints)
		}
	}

	if r := runOn(t, p, 0, "limit", "set", "smtp", "--concurrency", "1"); r.complaints != "" {
		t.Errorf("a limit that an activity names: %s", r.complaints)
	}
}

// A command accepts the shortened id of a table as an argument.
func TestTableIDsAreArguments(t *testing.T) {
	t.Parallel()
	p := &prepared{}
	for list, show := range map[string]string{"workflow list": "workflow describe", "task list": "task show", "dlq list": "dlq show", "entity list": "entity show"} {
		r := runOn(t, p, 80, strings.Fields(list)...)
		for _, line := range strings.Split(strings.TrimSpace(r.out), "\n")[1:] {
			id := strings.Fields(line)[0]
			if strings.HasPrefix(id, "perdure.") {
				continue // the table also cuts the name of the workflow
			}
			if shown := runOn(t, p, 80, append(strings.Fields(show), id)...); shown.code != 0 {
				t.Errorf("perdure %s %s: exit %d: %s", show, id, shown.code, shown.complaints)
			}
		}
	}
}

// Texts with wide characters and texts with control characters do not break a table.
func TestTablesOfStrangeTexts(t *testing.T) {
	t.Parallel()
	rows := [][]string{
		{"注文/東京都千代田区丸の内一丁目九番一号", "2026-11-15 12:00:00Z", "失敗しました: 残高が不足しています"},
		{"order/\x1b[2J\x1b]0;owned\a", "2026-11-15 12:00:00Z", "two\nlines\tand a tab"},
		{"order/e\u0301e\u0301e\u0301", "-", ""},
	}
	for _, width := range []int{10, 30, 40, 60, 80} {
		lines, _ := fitTable([]string{"EXECUTION", "STARTED", "REASON"}, rows, width)
		if len(lines) != len(rows)+1 {
			t.Errorf("%d lines at %d columns", len(lines), width)
		}
		for _, line := range append(lines, wrapTable(rows, width)...) {
			if strings.ContainsAny(line, "\x1b\a\t\n") {
				t.Errorf("%q would reach the terminal", line)
			}
		}
		for _, line := range lines {
			if w := ansi.StringWidth(line); w > width {
				t.Errorf("%d columns at %d: %s", w, width, line)
			}
		}
	}

	for width := 20; width < 60; width++ { // the name of a flag is not broken
		text := strings.Join(wrapTable([][]string{{"Error", "the card was declined-by-bank (--stack prints it, --dry-run-all not)"}}, width), "\n")
		if !strings.Contains(text, "(--stack") || !strings.Contains(text, "--dry-run-all") || strings.Contains(text, stiff) {
			t.Errorf("%d columns:\n%s", width, text)
		}
	}

	if lines := wrapTable([][]string{{"Error", "one\ntwo"}}, 0); !slices.Equal(lines, []string{"Error  one", "       two"}) {
		t.Errorf("a text of several lines: %q", lines)
	}
}
