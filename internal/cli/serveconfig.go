package cli

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/fault"
)

// configVariable names the configuration file, as --config does.
const configVariable = "PERDURE_CONFIG"

// configure sets the flags of serve that the command line does not give: from the environment, and
// from the configuration file where the environment has nothing. A flag --tls-cert is
// $PERDURE_TLS_CERT and the key tls_cert.
func configure(cmd *cobra.Command, file string) error {
	if file == "" {
		file = os.Getenv(configVariable)
	}
	values, err := readConfig(file)
	if err != nil {
		return err
	}

	flags := configurable(cmd)
	for key := range values {
		if flags[key] == nil {
			return unknownKey(file, key, flags)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(flags)) {
		f := flags[key]
		if f.Changed {
			continue
		}
		name := "PERDURE_" + strings.ToUpper(key)
		if text := os.Getenv(name); text != "" {
			if err := f.Value.Set(text); err != nil {
				return fault.New(fault.Invalid, "$%s is %q: %w", name, text, err)
			}
			continue
		}

		if value, ok := values[key]; ok {
			if err := f.Value.Set(value); err != nil {
				return fault.New(fault.Invalid, "%s: %s is %q: %w", file, key, value, err)
			}
		}
	}
	return nil
}

// configurable are the flags that can be configured, by their keys.
func configurable(cmd *cobra.Command) map[string]*pflag.Flag {
	all := map[string]*pflag.Flag{}
	add := func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "help" {
			all[strings.ReplaceAll(f.Name, "-", "_")] = f
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(add)
	for _, name := range []string{"store", "schema", "verbose"} {
		if f := cmd.Flag(name); f != nil {
			add(f)
		}
	}
	return all
}

// readConfig reads the values of a configuration file, as text; none without a file.
func readConfig(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the configuration: %w", err)
	}
	var raw map[string]any
	if err := toml.NewDecoder(bytes.NewReader(text)).Decode(&raw); err != nil {
		if at := (*toml.DecodeError)(nil); errors.As(err, &at) {
			line, column := at.Position()
			return nil, fault.New(fault.Invalid, "%s:%d:%d: %w", file, line, column, err)
		}
		return nil, fault.New(fault.Invalid, "%s: %w", file, err)
	}

	values := make(map[string]string, len(raw))
	for key, v := range raw {
		switch v.(type) {
		case string, bool, int64, float64:
			values[key] = fmt.Sprint(v)
		default:
			return nil, fault.New(fault.Invalid, "%s: %s is a %T, must be a text, a number or a truth value", file, key, v)
		}
	}
	return values, nil
}

// unknownKey refuses a key and names the nearest known one.
func unknownKey(file, key string, flags map[string]*pflag.Flag) error {
	if key == "admin_key" {
		return fault.WithHint(fault.New(fault.Invalid, "%s: the admin key does not belong into the configuration", file), "write it to a file of its own and name that in admin_key_file")
	}
	known := slices.Sorted(maps.Keys(flags))
	nearest := slices.MinFunc(known, func(a, b string) int { return distance(key, a) - distance(key, b) })
	return fault.WithHint(fault.New(fault.Invalid, "%s: unknown key %q", file, key), "did you mean %s? known keys: %s", nearest, strings.Join(known, ", "))
}

// distance is how many characters must be inserted, removed or replaced to make one text of
// another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}

	return row[len(b)]
}
