package archtest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Every invariant of the engine has tests that fail when it breaks, and these tests exist.
func TestInvariants(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("testdata/invariants.txt")
	if err != nil {
		t.Fatal(err)
	}
	// The list has gaps. L16 to L21 are about a library that sorts messages of senders with their
	// own clocks; in Perdure a message has a position in its channel instead. The invariants from
	// L41 on are among E1 to E46. E47 is not in the original list; we added it.
	names := slices.Concat(invariantNames("E", 1, 47), invariantNames("L", 1, 15), invariantNames("L", 22, 40))
	none(t, checkInvariants(ours(t), string(table), names))
}

func TestCheckInvariants(t *testing.T) {
	t.Parallel()
	conforms := `package x_test
func TestConformance(t *testing.T) {}`

	m := parse(t, map[string]string{
		"core/core_test.go": `package core
func TestCore(t *testing.T) { t.Fatalf("E1: %s is broken", t.Name()) }
func helper() {}
func (x X) TestMethod() {}`,
		"core/core.go":                         `package core; func TestInProduction() {}`,
		"internal/e2e/x_test.go":               `package e2e; func TestPrograms(t *testing.T) { _ = "a scenario" }`,
		"internal/store/storetest/x.go":        `package storetest; var cases = []string{"a case"}`,
		"internal/store/memory/x_test.go":      conforms,
		"internal/store/sqlite/x_test.go":      conforms,
		"internal/store/postgres/x_test.go":    conforms,
		"internal/store/postgres/more_test.go": `package x_test`,
	})

	good := "# a table\nE1 something holds\n  core TestCore/E1:\n  stores: a case\n\nE2 more\n  core TestCore\n  internal/e2e TestPrograms/a scenario\n" +
		"E3 alone\n  core TestCore\n  no store: there is none\nE4 outside\n  internal/e2e TestPrograms\n  no machine: none\nE5 not yet\n  later: when there are locks\n"
	names := invariantNames("E", 1, 5)
	none(t, checkInvariants(m, good, names))

	for _, c := range []struct{ old, new, want string }{
		{"core TestCore/E1:", "core TestGone", "package core has no TestGone"},
		{"core TestCore/E1:", "core helper", "package core has no helper"},
		{"core TestCore/E1:", "core TestMethod", "package core has no TestMethod"},
		{"core TestCore/E1:", "core TestInProduction", "package core has no TestInProduction"},
		{"core TestCore/E1:", "nowhere TestCore", "package nowhere has no TestCore"},
		{"core TestCore/E1:", "core TestCore/E2:", `package core has no text "E2:"`},
		{"a scenario", "a scen", `package internal/e2e has no text "a scen"`},
		{"stores: a case", "stores: another", `internal/store/storetest has no case "another"`},
		{"  stores: a case\n", "", "E1 needs a test of the core or a machine, and one on all stores"},
		{"  core TestCore/E1:\n", "", "E1 needs a test of the core"},
		{"  no store: there is none\n", "  no store:\n", "E3 needs"},
		{"  later: when there are locks\n", "", "E5 has no test"},
		{"  later: when there are locks\n", "  no store: x\n  no machine: x\n", "E5 has no test"},
		{"E4 outside", "E5 outside", `"E5 outside" stands where E4`},
		{"E1 something holds", "E1", `"E1" stands where E1 and what it says`},
		{"E5 not yet\n  later: when there are locks\n", "", "E5 is missing"},
		{"E5 not yet", "E5 more\n  later: no\nE6 not yet", `"E6 not yet" stands where nothing`},
		{"# a table\n", "  core TestCore\n", "belongs to no invariant"},
	} {
		if strings.Count(good, c.old) < 1 {
			t.Fatalf("%q is not in the table", c.old)
		}
		got := checkInvariants(m, strings.Replace(good, c.old, c.new, 1), names)
		if !slices.ContainsFunc(got, func(p string) bool { return strings.Contains(p, c.want) }) {
			t.Errorf("%q for %q: %q, want %q", c.new, c.old, got, c.want)
		}
	}
}
