package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure/internal/fault"
)

// FuzzConfig reads texts as a configuration file, as profiles, and as the file of a Flovyn server.
// For every text, the readers return settings, or an error of kind Invalid.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"", "listen = '127.0.0.1:0'", "lease = '20s'\nproduction = true", "[listen]\na = 1", "listn = 1", "access_log = -1", "a.b.c = 1", "[[orgs]]\nid = 1", contractFile,
		"current = 'a'\n[profile.a]\nserver = 'grpc://x'", "profile = 1", "[profile.a.b]\nserver = 'x'", "[profile]\na = 1", "current = 1\n[profile.'x y']\nstore = 'grpc://h'",
		"store = \"postgres://u:p@h/d\"", "listen = 1979-05-27", "listen = [1, 2]", "listen = {a = 1}", "\"\" = 1", "\x00", "[a]\n[a]", "lease = 99999999999999999999", "listen = '''x", "= 1",
	} {
		f.Add([]byte(text))
	}

	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		file := filepath.Join(dir, "perdure.toml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := configure(newServe(&options{}), file); err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("configure: %v", err)
		}
		if _, err := readProfilesOf(file); err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("read the profiles: %v", err)
		}
		_, err := readContract(func(name string) string { return map[string]string{"CONFIG_FILE": file}[name] })
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("read the contract: %v", err)
		}
	})
}
