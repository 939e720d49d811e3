//go:build long

package cli

import (
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The script of a release builds a static binary for each of four targets. A second build gives the
// same bytes. The script also writes a checksum of each file, and a bill of materials that lists
// the modules of the binary.
//
//nolint:paralleltest // the builds take all processors
func TestLongRelease(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "../../scripts/release.sh", dir)
	cmd.Env = append(os.Environ(), "VERIFY=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	sums := readSums(t, filepath.Join(dir, "SHA256SUMS"))
	for _, target := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
		name := "perdure-" + target
		if !strings.Contains(string(out), strings.ReplaceAll(target, "-", "/")+" is reproducible") {
			t.Errorf("%s was not built twice:\n%s", target, out)
		}
		for _, file := range []string{name, name + ".cdx.json"} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if sum := sha256.Sum256(text); sums[file] != hex.EncodeToString(sum[:]) {
				t.Errorf("%s has the checksum %x, and SHA256SUMS says %q", file, sum, sums[file])
			}
		}
		checkTarget(t, filepath.Join(dir, name), target)
		checkBill(t, filepath.Join(dir, name))
	}
	if len(sums) != 8 {
		t.Errorf("SHA256SUMS has %d files: %v", len(sums), sums)
	}
	if runtime.GOOS == "linux" {
		run := exec.CommandContext(t.Context(), filepath.Join(dir, "perdure-linux-"+runtime.GOARCH), "version")
		if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "linux/"+runtime.GOARCH) {
			t.Errorf("version: %v\n%s", err, out)
		}
	}
}

// readSums reads a file of checksums.
func readSums(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 {
			sums[words[1]] = words[0]
		}
	}
	return sums
}

// checkTarget checks that a binary is for its target, and that a binary for Linux loads no
// libraries.
func checkTarget(t *testing.T, file, target string) {
	t.Helper()
	if strings.HasPrefix(target, "darwin") {
		f, err := macho.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if want := map[string]macho.Cpu{"darwin-amd64": macho.CpuAmd64, "darwin-arm64": macho.CpuArm64}[target]; f.Cpu != want {
			t.Errorf("%s is for %s", target, f.Cpu)
		}
		return
	}

	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := map[string]elf.Machine{"linux-amd64": elf.EM_X86_64, "linux-arm64": elf.EM_AARCH64}[target]; f.Machine != want {
		t.Errorf("%s is for %s", target, f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s is not static: it has %s", target, p.Type)
		}
	}
}

// checkBill compares a bill of materials with the modules that the binary itself lists.
func checkBill(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		BOMFormat   string
		SpecVersion string
		Components  []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	listed := map[string]bool{}
	for _, c := range bill.Components {
		listed[c.Name+" "+c.Version] = c.PURL == "pkg:golang/"+c.Name+"@"+c.Version
	}
	for _, m := range info.Deps {
		if !listed[m.Path+" "+m.Version] {
			t.Errorf("the bill of %s does not have %s %s", filepath.Base(file), m.Path, m.Version)
		}
	}
	if bill.BOMFormat != "CycloneDX" || bill.SpecVersion == "" || len(bill.Components) != len(info.Deps) || len(info.Deps) < 20 {
		t.Errorf("the bill of %s is %s %s with %d of %d modules", filepath.Base(file), bill.BOMFormat, bill.SpecVersion, len(bill.Components), len(info.Deps))
	}
}
