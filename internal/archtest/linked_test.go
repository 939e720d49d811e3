package archtest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// linkBudgets say what a program may link. A remote worker stays small: the root package links gRPC
// and no store. A program with an embedded store does not link packages that only the command line
// needs.
var linkBudgets = []struct {
	of      string
	most    int      // number of packages, including the standard library
	must    []string // prefixes of packages that it links
	mustNot []string
}{
	{
		of: ".", most: 390, must: []string{"google.golang.org/grpc", "github.com/perdure/perdure/internal/remote"},
		mustNot: []string{
			"github.com/perdure/perdure/internal/store", "github.com/perdure/perdure/internal/engine", "github.com/perdure/perdure/internal/service",
			"github.com/perdure/perdure/internal/node", "github.com/perdure/perdure/internal/grpcapi", "github.com/jackc/pgx", "github.com/ncruces/go-sqlite3",
			"github.com/prometheus", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/spf13",
		},
	},
	{
		of: "./embedded", most: 485, must: []string{"github.com/perdure/perdure/internal/node"},
		mustNot: []string{
			"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/spf13", "github.com/pelletier", "charm.land",
			"github.com/perdure/perdure/internal/telemetry/otlp", "github.com/perdure/perdure/internal/cli", "github.com/cedar-policy", "github.com/danielgtaylor",
		},
	},
}

// moduleRoot is the directory of the module.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLinkedPackages(t *testing.T) {
	t.Parallel()
	for _, b := range linkBudgets {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", b.of)
		cmd.Dir = moduleRoot(t)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", b.of, err)
		}

		linked := strings.Fields(string(out))
		if len(linked) > b.most {
			t.Errorf("%s links %d packages, its budget is %d", b.of, len(linked), b.most)
		}
		for _, prefix := range b.must {
			if !links(linked, prefix) {
				t.Errorf("%s does not link %s: is the test still right?", b.of, prefix)
			}
		}
		for _, prefix := range b.mustNot {
			if links(linked, prefix) {
				t.Errorf("%s links %s", b.of, prefix)
			}
		}
	}
}

// links reports whether one of the packages has this path or is below it.
func links(linked []string, path string) bool {
	for _, p := range linked {
		if p == path || strings.HasPrefix(p, path+"/") {
			return true
		}
	}
	return false
}
