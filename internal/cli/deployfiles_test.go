package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/perdure/perdure/internal/telemetry"
)

// metricName matches names of metrics in a query.
var metricName = regexp.MustCompile(`perdure_[a-z_]+`)

// unknownMetrics returns the names in queries that no metric has. Prometheus derives several names
// from a histogram, such as its name with _bucket.
func unknownMetrics(queries []string) (unknown []string) {
	known := map[string]bool{}
	for _, f := range telemetry.Families() {
		if f.Kind != telemetry.Histogram {
			known[f.Name] = true
			continue
		}
		for _, end := range []string{"_bucket", "_sum", "_count"} {
			known[f.Name+end] = true
		}
	}

	for _, q := range queries {
		names := metricName.FindAllString(q, -1)
		if len(names) == 0 {
			unknown = append(unknown, q)
		}
		for _, name := range names {
			if !known[name] {
				unknown = append(unknown, name)
			}
		}
	}

	return unknown
}

// labelName matches the labels that a query selects by, or groups by.
var labelName = regexp.MustCompile(`\bby \(([^)]*)\)|([a-z_]+) *(?:=~|!~|!=|=) *"`)

// unknownLabels returns the labels in queries that the metrics of the query do not have. Prometheus
// itself adds the label instance, and a histogram has the label le.
func unknownLabels(queries []string) (unknown []string) {
	for _, q := range queries {
		known := []string{"instance", "job", "le"}
		for _, f := range telemetry.Families() {
			if strings.Contains(q, f.Name) {
				known = append(known, f.Labels...)
			}
		}
		for _, m := range labelName.FindAllStringSubmatch(q, -1) {
			for name := range strings.SplitSeq(m[1]+","+m[2], ",") {
				if name = strings.TrimSpace(name); name != "" && !slices.Contains(known, name) {
					unknown = append(unknown, name)
				}
			}
		}
	}
	return unknown
}

// The alerts and the dashboard only use metrics and labels that exist.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readDoc(t, "deploy/prometheus/alerts.yaml")), &alerts); err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("rule %+v has no name, severity or summary", r)
			}
			queries = append(queries, r.Expr)
		}
	}
	if len(queries) < 5 {
		t.Errorf("there are %d alerts", len(queries))
	}

	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readDoc(t, "deploy/grafana/perdure.json")), &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("panel %+v has no title or no query", p)
		}
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}

	if unknown := unknownMetrics(queries); len(unknown) > 0 {
		t.Errorf("queries use metrics that do not exist: %q", unknown)
	}
	if unknown := unknownLabels(queries); len(unknown) > 0 {
		t.Errorf("queries use labels that their metrics do not have: %q", unknown)
	}
	if got := unknownLabels([]string{`sum by (queue, le) (perdure_nodes{outcome!="ok"})`, `sum by (outcome) (perdure_commits_total{outcome="ok"})`}); !slices.Equal(got, []string{"queue", "outcome"}) {
		t.Errorf("the check of labels finds %q", got)
	}
	if got := unknownMetrics([]string{"perdure_commit_seconds", "perdure_nodes"}); !slices.Equal(got, []string{"perdure_commit_seconds"}) {
		t.Errorf("the check finds %q", got)
	}
}

// serveFlagsIn returns the flags after "serve" in a text.
func serveFlagsIn(text string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)(?:^|\s)--([a-z-]+)`).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// The files of docs/deployment.md can be parsed, and start the server with flags that exist.
func TestDeploymentFiles(t *testing.T) {
	t.Parallel()
	known := newRoot(&options{})
	serve, _, err := known.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(name, text string, least int) {
		t.Helper()
		names := serveFlagsIn(text)
		if len(names) < least {
			t.Errorf("%s gives serve %d flags", name, len(names))
		}
		for _, flag := range names {
			if serve.Flag(flag) == nil {
				t.Errorf("%s gives serve the unknown flag --%s", name, flag)
			}
		}
	}

	var compose struct {
		Services map[string]struct {
			Command []string
			Secrets []string
		}
		Secrets map[string]any
	}
	if err := yaml.Unmarshal([]byte(readDoc(t, "deploy/compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	check("compose.yaml", strings.Join(compose.Services["perdure"].Command, " "), 4)
	for name, s := range compose.Services {
		for _, secret := range s.Secrets {
			if compose.Secrets[secret] == nil {
				t.Errorf("service %s uses the secret %s, which is not defined", name, secret)
			}
		}
	}

	unit := readDoc(t, "deploy/perdure.service")
	start := regexp.MustCompile(`(?m)^ExecStart=.*$`).FindString(unit)
	check("perdure.service", start, 2)
	for _, want := range []string{"ProtectProc=invisible", "ProtectSystem=strict", "NoNewPrivileges=yes", "DynamicUser=yes", fmt.Sprintf("RestartPreventExitStatus=%d", exitRefused)} {
		if !strings.Contains(unit, "\n"+want+"\n") {
			t.Errorf("perdure.service has no %s", want)
		}
	}

	checkManifests(t, check)
	checkWithTools(t, unit)
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", "../../scripts/release.sh").CombinedOutput(); err != nil {
		t.Errorf("scripts/release.sh: %v\n%s", err, out)
	}
}

// checkWithTools checks the files with their own tools, if this machine has them. kubectl renders
// the manifests without a cluster, and systemd checks the unit. For systemd the test replaces the
// path of perdure by a program that exists.
func checkWithTools(t *testing.T, unit string) {
	t.Helper()
	file := writeFile(t, t.TempDir(), "perdure.service", strings.ReplaceAll(unit, "/usr/local/bin/perdure", "/bin/sh"))
	for _, command := range [][]string{
		{"kubectl", "kustomize", "../../deploy/kubernetes"},
		{"systemd-analyze", "verify", file},
		{"systemd-analyze", "security", "--offline=yes", "--threshold=20", file},
		{"docker", "compose", "-f", "../../deploy/compose.yaml", "config", "--quiet"},
		{"promtool", "check", "rules", "../../deploy/prometheus/alerts.yaml"},
	} {
		if _, err := exec.LookPath(command[0]); err != nil {
			t.Logf("%s is not there, so the files are only parsed", command[0])
			continue
		}
		if command[0] == "docker" && exec.CommandContext(t.Context(), "docker", "compose", "version").Run() != nil {
			t.Log("docker has no compose, so the file is only parsed")
			continue
		}
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
}

// checkManifests parses all manifests, and compares the list of the kustomization with the files.
func checkManifests(t *testing.T, check func(name, text string, least int)) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	kinds := map[string]bool{}
	for _, file := range files {
		text, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer text.Close()

		dec := yaml.NewDecoder(text)
		for {
			var m struct {
				APIVersion string `yaml:"apiVersion"`
				Kind       string
				Resources  []string
				Spec       struct {
					Template struct {
						Spec struct {
							Containers []struct{ Args []string }
						}
					}
				}
			}
			if err := dec.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}

			if m.APIVersion == "" || m.Kind == "" {
				t.Errorf("%s has a document without a kind", file)
			}
			kinds[m.Kind], listed = true, append(listed, m.Resources...)
			for _, c := range m.Spec.Template.Spec.Containers {
				check(file, strings.Join(c.Args, " "), 5)
			}
		}
	}

	for _, kind := range []string{"Kustomization", "Namespace", "Deployment", "Service", "PodDisruptionBudget"} {
		if !kinds[kind] {
			t.Errorf("there is no %s", kind)
		}
	}
	if len(listed) != len(files)-1 {
		t.Errorf("the kustomization lists %q of %d files", listed, len(files)-1)
	}
	for _, name := range listed {
		if !slices.Contains(files, "../../deploy/kubernetes/"+name) {
			t.Errorf("the kustomization lists %s, which does not exist", name)
		}
	}
}
