package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

const (
	// profileVariable names the profile, as --profile does.
	profileVariable = "PERDURE_PROFILE"
	// profilesVariable names the file that has the profiles.
	profilesVariable = "PERDURE_PROFILES"
)

// profile is a store or a server, and the identity of the caller there. It does not contain the
// key: the key is in a separate file or in the environment.
type profile struct {
	Server  string `toml:"server,omitempty"`
	Store   string `toml:"store,omitempty"`
	Tenant  string `toml:"tenant,omitempty"`
	CA      string `toml:"ca,omitempty"`
	KeyFile string `toml:"key_file,omitempty"`
	KeyEnv  string `toml:"key_env,omitempty"`
}

// profileKeys are the keys of a profile in the file.
var profileKeys = []string{"server", "store", "tenant", "ca", "key_file", "key_env"}

// profiles are all profiles of a user, and the name of the profile that commands use by default.
type profiles struct {
	Current string             `toml:"current,omitempty"`
	Named   map[string]profile `toml:"profile,omitempty"`

	path string
}

var (
	profileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	envName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// profilesPath returns the path of the file. It is empty if the user has no home directory.
func profilesPath() string {
	if path := os.Getenv(profilesVariable); path != "" {
		return path
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "perdure", "profiles.toml")
}

// readProfiles reads the profiles of the user. Its error names everything that is wrong. If the
// file does not exist, there are no profiles.
func readProfiles() (*profiles, error) { return readProfilesOf(profilesPath()) }

// readProfilesOf is like readProfiles, for the file at a path. If path is empty, there are no
// profiles.
func readProfilesOf(path string) (*profiles, error) {
	all := &profiles{Named: map[string]profile{}, path: path}
	if all.path == "" {
		return all, nil
	}
	text, err := os.ReadFile(all.path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the profiles: %w", err)
	}
	if err := checkOwnOnly("the profiles", all.path); err != nil {
		return nil, err
	}
	f, err := parseTOML(all.path, text)
	if err != nil {
		return nil, err
	}

	if err := joinProblems(f.profileProblems()); err != nil {
		return nil, err
	}
	if err := toml.Unmarshal(text, all); err != nil {
		return nil, fault.New(fault.Invalid, "%s: %w", all.path, err)
	}
	if all.Named == nil {
		all.Named = map[string]profile{}
	}
	return all, all.check(f)
}

// profileProblems returns an error for each unknown key, and for each value that is not a text.
func (f *tomlFile) profileProblems() (problems []error) {
	for _, key := range f.inOrder("", f.values) {
		table, ok := f.values[key].(map[string]any)
		switch {
		case key == "current":
			problems = append(problems, f.textProblems("", key, f.values[key])...)
		case key != "profile":
			problems = append(problems, f.unknownKey("", key, []string{"current", "profile"}))
		case !ok:
			problems = append(problems, fault.New(fault.Invalid, "%s: profile must be a table, such as [profile.prod]", f.at(key)))
		default:
			for _, name := range f.inOrder("profile.", table) {
				problems = append(problems, f.oneProfileProblems(name, table[name])...)
			}
		}
	}

	return problems
}

func (f *tomlFile) oneProfileProblems(name string, v any) (problems []error) {
	table, ok := v.(map[string]any)
	if !ok {
		return []error{fault.New(fault.Invalid, "%s: profile.%s must be a table", f.at("profile."+name), name)}
	}
	prefix := "profile." + name + "."
	for _, key := range f.inOrder(prefix, table) {
		if !slices.Contains(profileKeys, key) {
			problems = append(problems, f.unknownKey(prefix, key, profileKeys))
			continue
		}
		problems = append(problems, f.textProblems(prefix, key, table[key])...)
	}
	return problems
}

func (f *tomlFile) textProblems(prefix, key string, v any) []error {
	if _, ok := v.(string); ok {
		return nil
	}
	return []error{fault.New(fault.Invalid, "%s: %s is a %T, must be a text", f.at(prefix+key), key, v)}
}

// check returns everything that is wrong with the values of the profiles.
func (all *profiles) check(f *tomlFile) error {
	var problems []error
	for _, name := range all.names() {
		p := all.Named[name]
		for _, err := range p.check(name) {
			problems = append(problems, fmt.Errorf("%s: %w", f.at("profile."+name), err))
		}
	}
	if _, ok := all.Named[all.Current]; all.Current != "" && !ok {
		problems = append(problems, fault.New(fault.Invalid, "%s: there is no profile %q", f.at("current"), all.Current))
	}
	return joinProblems(problems)
}

// check returns everything that is wrong with a profile.
func (p *profile) check(name string) (problems []error) {
	wrong := func(format string, args ...any) {
		problems = append(problems, fault.New(fault.Invalid, "profile "+name+": "+format, args...))
	}
	if !profileName.MatchString(name) {
		wrong("its name must be letters, digits, dashes and underscores, at most 64")
	}
	if (p.Server == "") == (p.Store == "") {
		wrong("it must have either a server or a store")
	}

	if p.Server != "" {
		if _, err := remote.ParseURL(p.Server); err != nil {
			wrong("server: %w", err)
		}
	}

	if remote.IsURL(p.Store) {
		wrong("its store is the URL of a server: use server")
	}
	if p.Tenant != "" && !model.ValidTenant(p.Tenant) {
		wrong("tenant %q must be letters, digits, dots, dashes and underscores, at most %d", p.Tenant, model.MaxTenant)
	}
	if p.KeyFile != "" && p.KeyEnv != "" {
		wrong("it has both a key file and a variable for the key: choose one")
	}
	if p.KeyEnv != "" && !envName.MatchString(p.KeyEnv) {
		wrong("key_env is not the name of an environment variable")
	}
	if p.Server == "" && (p.CA != "" || p.KeyFile != "" || p.KeyEnv != "") {
		wrong("a certificate and a key belong to a server, and it has none")
	}

	return problems
}

// names returns the names of all profiles in order.
func (all *profiles) names() []string { return slices.Sorted(maps.Keys(all.Named)) }

// find returns a profile.
func (all *profiles) find(name string) (profile, error) {
	if p, ok := all.Named[name]; ok {
		return p, nil
	}
	return profile{}, fault.WithHint(fault.New(fault.NotFound, "there is no profile %s", name), "%s", knownText("profiles", all.names()))
}

// write replaces the file. Only the user can read it.
func (all *profiles) write() error {
	if all.path == "" {
		return fault.New(fault.Invalid, "this user has no directory for settings: name a file in $%s", profilesVariable)
	}
	text, err := toml.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(all.path), 0o700); err != nil {
		return fault.New(fault.Invalid, "write the profiles: %w", err)
	}

	f, err := os.CreateTemp(filepath.Dir(all.path), "profiles-*.toml") // with mode 0600
	if err != nil {
		return fault.New(fault.Invalid, "write the profiles: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), all.path)
	}
	if err != nil {
		return fault.New(fault.Invalid, "write the profiles: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// checkOwnOnly refuses a file that users other than its owner can read or change.
func checkOwnOnly(what, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return nil // the code that reads the file reports what is wrong
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		err := fault.New(fault.Invalid, "%s has mode %04o, and other users must not read or change %s", file, mode, what)
		return fault.WithHint(err, "chmod 600 %s", file)
	}
	return nil
}

// readKey reads a key from a file that only its user can read.
func readKey(file string) (string, error) {
	if err := checkOwnOnly("the key", file); err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fault.New(fault.Invalid, "read the key: %w", err)
	}
	key := bytes.TrimSpace(text)
	if len(key) == 0 {
		return "", fault.New(fault.Invalid, "%s has no key", file)
	}
	return string(key), nil
}
