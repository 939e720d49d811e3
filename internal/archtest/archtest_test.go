package archtest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/surface")

// perdure parses this module once for all tests.
var perdure = sync.OnceValues(func() (*module, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	root, err := findRoot(dir)
	if err != nil {
		return nil, err
	}
	return load(root)
})

// ours returns this module.
func ours(t *testing.T) *module {
	t.Helper()
	m, err := perdure()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// none reports each problem as an error.
func none(t *testing.T, problems []string) {
	t.Helper()
	for _, problem := range problems {
		t.Error(problem)
	}
}

func TestRooms(t *testing.T) {
	t.Parallel()
	none(t, checkRooms(ours(t), rooms))
}

func TestNoTestingInProductionCode(t *testing.T) {
	t.Parallel()
	none(t, checkTesting(ours(t), rooms))
}

func TestPackageDocs(t *testing.T) {
	t.Parallel()
	none(t, checkPackageDocs(ours(t)))
}

func TestExportedDocs(t *testing.T) {
	t.Parallel()
	none(t, checkExportedDocs(ours(t)))
}

func TestFileLengths(t *testing.T) {
	t.Parallel()
	none(t, checkLengths(ours(t)))
}

func TestNothingIsPutOff(t *testing.T) {
	t.Parallel()
	none(t, checkUnfinished(ours(t)))
}

func TestPurity(t *testing.T) {
	t.Parallel()
	none(t, checkPurity(ours(t), pure))
}

// TestTheModuleWasSeen makes sure that the tests above have read the module. Without files, all of
// them would pass.
func TestTheModuleWasSeen(t *testing.T) {
	t.Parallel()
	m := ours(t)
	if m.path != "github.com/perdure/perdure" {
		t.Errorf("module %s", m.path)
	}
	for _, p := range m.packages {
		if p.dir == "internal/archtest" && len(p.files) >= 5 {
			return
		}
	}
	t.Error("this package is not among the packages of the module")
}

func TestSurface(t *testing.T) {
	t.Parallel()
	m := ours(t)
	known := map[string]bool{}
	for _, p := range m.packages {
		r, _ := roomOf(rooms, p.dir)
		if !r.public {
			continue
		}
		golden := filepath.Join("testdata", "surface", surfaceFile(m, p))
		known[golden] = true
		got, ok := surface(p)
		if !ok {
			t.Logf("%s cannot be parsed at the moment; its surface is not compared", p.dir)
			continue
		}

		if *update {
			if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}

		want, err := os.ReadFile(golden)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s exports something else than %s says. If that is meant, run `go test ./internal/archtest -update` and have it reviewed (-recorded +now):\n%s", p.dir, golden, diff)
		}
	}

	recorded, err := filepath.Glob(filepath.Join("testdata", "surface", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}

	for _, golden := range recorded {
		switch {
		case known[golden]:
		case *update:
			if err := os.Remove(golden); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is the surface of no package", golden)
		}
	}
}

func TestTypeBudget(t *testing.T) {
	t.Parallel()
	for _, p := range ours(t).packages {
		if p.dir == "." && countTypes(p) > maxTypes {
			t.Errorf("the root package exports %d types, its budget is %d", countTypes(p), maxTypes)
		}
	}
}
