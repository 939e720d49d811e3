package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// --fields selects fields of every format, in the order of the flag, and refuses unknown ones.
func TestFields(t *testing.T) {
	t.Parallel()
	p := &prepared{}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"workflow list --fields run,key -o jsonl --limit 1", 0, `{"run":"` + runOf(1).String() + `","key":"42"}`},
		{"workflow list --fields statuss -o jsonl", 2, `unknown field "statuss" (did you mean status?)`},
		{"workflow list --fields key,,run -o json", 2, "must be names of fields"},
		{"workflow list --fields status.word -o json", 2, `unknown field "status.word" (status has no fields)`},
		{"workflow list --fields labels.anything -o jsonl --limit 1", 0, `{`},
		{"workflow list --fields nothing_like_it -o json", 2, "known fields: workflow, key, run"},
		{"workflow list --fields STARTED,execution", 0, "STARTED"},
		{"workflow list --fields labels.x", 2, `column "labels" of a table has no fields`},
		{"workflow list --fields key --watch", 2, "this command prints lines (add -o json, jsonl or yaml)"},
		{"workflow explain order/42 --fields reasons.code -o jsonl", 0, `{"reasons":[{"code":"`},
		{"workflow explain order/42 --fields reasons.kode -o jsonl", 2, `did you mean reasons.code?`},
		{"workflow explain order/42 --fields reasons", 2, "this command prints lines"},
		{"schedule next nightly --fields time", 0, "TIME"},
		{"schedule next nightly --fields time -o json", 2, "this output has no fields"},
		{"schedule list --fields name,spec.cron,status.counts.fired -o jsonl", 0, `"status":{"counts":{"fired":`},
		{"schedule list --fields spec.corn -o jsonl", 2, "did you mean spec.cron?"},
	} {
		r := runOn(t, p, 0, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(strings.Join(strings.Fields(r.out+r.complaints), " "), c.want) {
			t.Errorf("perdure %s: exit %d, want %d and %q:\n%s%s", c.args, r.code, c.code, c.want, r.out, r.complaints)
		}
	}

	if r := runOn(t, &prepared{empty: true}, 0, "workflow", "list", "--fields", "kye", "-o", "json"); r.code != 2 {
		t.Errorf("an unknown field of an empty list: exit %d: %s", r.code, r.out)
	}
}

// Every command that lists or shows something has --fields. For each field of its first value, the
// command with --fields prints that field alone.
func TestFieldsOfEveryCommand(t *testing.T) {
	t.Parallel()
	p := &prepared{}
	for _, line := range looks {
		all := runOn(t, p, 0, append(strings.Fields(line), "-o", "jsonl")...)
		first, _, _ := strings.Cut(all.out, "\n")
		var value map[string]json.RawMessage
		cmd, _, err := newRoot(&options{}).Find(strings.Fields(line))
		if err != nil || cmd.Flags().Lookup("fields") == nil || json.Unmarshal([]byte(first), &value) != nil {
			if err != nil || cmd.Name() != "state" && cmd.Name() != "rebalance" && cmd.Name() != "next" {
				t.Errorf("perdure %s has no fields: %v", line, err)
			}
			continue
		}

		for name := range value {
			r := runOn(t, p, 0, append(strings.Fields(line), "-o", "jsonl", "--fields", name)...)
			got, _, _ := strings.Cut(r.out, "\n")
			var picked map[string]json.RawMessage
			if err := json.Unmarshal([]byte(got), &picked); err != nil || !reflect.DeepEqual(picked, map[string]json.RawMessage{name: value[name]}) {
				t.Errorf("perdure %s --fields %s: exit %d: %s%s, want %s", line, name, r.code, got, r.complaints, value[name])
			}
		}
	}
}
