package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/cli"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
)

// The help shows where the store and its databases come from, and never their passwords.
func TestHelpShowsNoPassword(t *testing.T) {
	t.Setenv("PERDURE_STORE", "postgres://user:secret@main/app")
	t.Setenv("PERDURE_DATABASES", "eu=postgres://user:secret@eu/app us=postgres://us/app?user=user&password=secret asia=postgres://asia/app?sslkey=asia.key&sslpassword=secret")
	run := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if code := cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != 0 {
			t.Errorf("perdure %s: exit %d", strings.Join(args, " "), code)
		}
		if strings.Contains(out.String(), "secret") {
			t.Errorf("perdure %s shows a password:\n%s", strings.Join(args, " "), out.String())
		}
		return out.String()
	}

	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"workflow", "list", "--help"}, {"migrate", "--help"}} {
		for _, variable := range []string{"$PERDURE_STORE", "$PERDURE_DATABASES"} {
			if help := run(args...); !strings.Contains(help, variable) {
				t.Errorf("perdure %s does not name %s:\n%s", strings.Join(args, " "), variable, help)
			}
		}
	}

	file := filepath.Join(t.TempDir(), "perdure.toml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if shown := run("config", "show", "--config", file, "--wide"); !strings.Contains(shown, "eu=postgres://user:xxxxx@eu/app") {
		t.Errorf("config show does not show the database:\n%s", shown)
	}
	run("config", "show")
}

// The commands create the groups of another database, show it, check it, and read executions of
// both databases. Without the database they say what is missing.
func TestCommandsOnSeveralDatabases(t *testing.T) {
	t.Parallel()
	// The command migrates only on a server that keeps what it acknowledges.
	server := pgtest.Start(t, pgtest.Options{Fsync: true, Settings: map[string]string{"synchronous_commit": "on"}})
	url, eu := server.NewDatabase(t), server.NewDatabase(t)
	alone := on(t, url)
	do := func(want string, code int, args ...string) string {
		t.Helper()
		return alone(want, code, append(args, "--databases", "frankfurt="+eu)...)
	}

	do("with the name of a database, whose URL belongs into --databases", 2, "migrate", "--groups", "eu=4@"+eu)
	do(`the database "paris" is not configured`, 2, "migrate", "--groups", "eu=4@paris")
	do("8 shards and the shard groups eu=4", 0, "migrate", "--shards", "4", "--groups", "eu=4@frankfurt")
	do("up to date", 0, "migrate")
	do("shard groups eu; version", 0, "migrate", "status")
	st := decode[node.SchemaStatus](t, do("", 0, "migrate", "status", "-o", "json"))
	if len(st.Databases) != 1 || st.Databases[0].Version != st.Latest || st.Databases[0].Problem != "" {
		t.Errorf("databases %+v", st.Databases)
	}
	alone("database frankfurt is not configured", 4, "migrate", "status")
	alone("database frankfurt is not configured", 9, "doctor")
	alone("has the databases [frankfurt] next to this one, and [] are configured", 4, "workflow", "list")

	n, err := node.Open(t.Context(), node.Config{URL: url, Groups: []string{"default", "eu"}, Databases: map[string]string{"frankfurt": eu}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, s := range decode[[]struct{ Group, Database string }](t, do("", 0, "cluster", "shards", "-o", "json")) {
		if want := map[string]string{"eu": "frankfurt"}[s.Group]; s.Database != want {
			t.Errorf("a shard of the group %s is in the database %q, want %q", s.Group, s.Database, want)
		}
	}
	do("", 0, "workflow", "start", "pay@eu", "--key", "in-eu")
	do("", 0, "workflow", "start", "pay", "--key", "at-home")
	if list := do("in-eu", 0, "workflow", "list"); !strings.Contains(list, "at-home") {
		t.Errorf("the list lacks an execution of the first database:\n%s", list)
	}
	do("database frankfurt", 9, "doctor") // no process has the code of the executions

	// Each database has its own clock, role and pooler.
	separator := "?"
	if strings.Contains(eu, "?") {
		separator = "&"
	}
	count := map[string]int{}
	details := map[string]string{}
	for _, f := range decode[[]struct{ Check, State, Detail string }](t, alone("", 9, "doctor", "-o", "json", "--databases", "frankfurt="+eu+separator+"prepare=off")) {
		count[f.Check]++
		details[f.Check] = f.Detail
	}
	for _, check := range []string{"clock", "role", "pooler"} {
		if of := check + " of database frankfurt"; count[check] != 1 || count[of] != 1 {
			t.Errorf("%d findings %q and %d findings %q, want one each", count[check], check, count[of], of)
		}
	}
	if !strings.Contains(details["pooler of database frankfurt"], "prepare=off") || strings.Contains(details["pooler"], "prepare=off") {
		t.Errorf("pooler: %q, of the other database: %q", details["pooler"], details["pooler of database frankfurt"])
	}
}
