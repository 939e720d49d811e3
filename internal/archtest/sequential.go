package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// sequentialKinds are the words behind a test in scripts/sequential.txt.
var sequentialKinds = []string{"short", "also", "deep"}

// checkSequential compares the list of tests that CI runs only without the race detector
// (scripts/sequential.txt) with the existing tests. The script selects tests only by name, so no
// two packages may have a listed test of the same name.
func checkSequential(m *module, list string) (problems []string) {
	where := map[string][]string{}
	for _, p := range m.packages {
		for name := range p.findTests().tests {
			where[name] = append(where[name], p.dir)
		}
	}

	for i, line := range strings.Split(strings.TrimSuffix(list, "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		wrong := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("sequential.txt:%d: ", i+1)+fmt.Sprintf(format, args...))
		}
		words := strings.Split(line, " ")
		if len(words) != 2 && (len(words) != 3 || !slices.Contains(sequentialKinds, words[2])) {
			wrong("%q is not a directory and a test, with or without one of %q", line, sequentialKinds)
			continue
		}
		switch dirs := where[words[1]]; {
		case len(dirs) == 0:
			wrong("no package has %s", words[1])
		case len(dirs) > 1:
			wrong("%s is in %s", words[1], strings.Join(dirs, " and "))
		case dirs[0] != words[0]:
			wrong("%s is in %s, not in %s", words[1], dirs[0], words[0])
		}
	}
	return problems
}
