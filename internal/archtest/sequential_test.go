package archtest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Every test that never runs with the race detector in CI exists in exactly one package.
func TestSequentialTests(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("../../scripts/sequential.txt")
	if err != nil {
		t.Fatal(err)
	}
	none(t, checkSequential(ours(t), string(list)))
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
