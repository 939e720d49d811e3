package archtest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/store/storetest"
)

// Every test that the fast suite runs without the race detector exists in exactly one package.
func TestSequentialTests(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("../../scripts/sequential.txt")
	if err != nil {
		t.Fatal(err)
	}
	none(t, checkSequential(ours(t), string(list)))
}

// The fast suite runs the tests in the variable raced only with the race detector. It selects them
// by name among the packages that run without it, so each must exist in one of these packages only.
func TestRacedTests(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../../scripts/test.sh")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^raced='(.*)'$`).FindSubmatch(script)
	if names == nil {
		t.Fatal("scripts/test.sh does not set raced")
	}
	without := regexp.MustCompile(`^internal/(chaos|cli|crashwalk|e2e|txtest|store/partitioned|store/postgres)$`)
	where := map[string][]string{}
	for _, p := range ours(t).packages {
		for name := range p.findTests().tests {
			if without.MatchString(p.dir) {
				where[name] = append(where[name], p.dir)
			}
		}
	}

	all := regexp.MustCompile(`Test\w+`).FindAllString(string(names[1]), -1)
	if len(all) == 0 {
		t.Errorf("there is no test in %s", names[1])
	}
	for _, name := range all {
		if dirs := where[name]; len(dirs) != 1 || !strings.HasPrefix(dirs[0], "internal/store/") {
			t.Errorf("%s is in %v, want one package of a store", name, dirs)
		}
	}
	if groups := "^(" + strings.Join(storetest.Overlapping(), "|") + ")$"; !strings.Contains(string(names[1]), groups) {
		t.Errorf("raced does not have the overlapping groups %s", groups)
	}
}

func TestCheckSequential(t *testing.T) {
	t.Parallel()
	m := parse(t, map[string]string{
		"a/a_test.go": `package a; func TestOne(t *testing.T) {}; func TestBoth(t *testing.T) {}`,
		"b/b_test.go": `package b; func TestTwo(t *testing.T) {}; func TestBoth(t *testing.T) {}`,
	})
	none(t, checkSequential(m, "# a list\na TestOne short\nb TestTwo also\n"))
	for line, want := range map[string]string{
		"a TestGone":      "no package has TestGone",
		"a TestTwo":       "TestTwo is in b, not in a",
		"a TestBoth":      "TestBoth is in",
		"a TestOne never": "is not a directory and a test",
		"a":               "is not a directory and a test",
		"":                "is not a directory and a test",
	} {
		got := checkSequential(m, "a TestOne\n"+line+"\n")
		if len(got) != 1 || !slices.ContainsFunc(got, func(p string) bool { return strings.HasPrefix(p, "sequential.txt:2: ") && strings.Contains(p, want) }) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
