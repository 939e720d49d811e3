package cli

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/fault"
)

// Settings of the configuration file that a running server can change.
const (
	verboseSetting   = "verbose"
	accessLogSetting = "access_log"
)

// configurationFile is the configuration file of a running server.
type configurationFile struct {
	trouble

	file    string
	command *cobra.Command // the command of the server; its flags have the values in use
	from    origins
	level   *slog.LevelVar
	log     *slog.Logger
}

// reload reads the file and applies the settings that a running server can change. It logs which
// other settings have changed. If one setting is wrong, it applies none. The server reads the
// configuration again only when an operator asks for it, unlike policies and certificates, because
// an operator may save a file several times during one edit.
func (c *configurationFile) reload(_ context.Context, r reloading) {
	if !r.asked {
		return
	}
	next, from, err := c.read()
	if err != nil {
		c.set("the configuration cannot be used, so the former one stays: " + err.Error())
		c.log.Error("the configuration cannot be used; the former one stays", "file", c.file, "error", err)
		return
	}

	var late []string
	now := configurable(c.command)
	for _, key := range slices.Sorted(maps.Keys(now)) {
		value := next[key].Value.String()
		switch {
		case c.from[key] == flagOrigin: // a flag wins over the file
		case value == now[key].Value.String():
		case key == verboseSetting || key == accessLogSetting:
			// Cannot happen: the value comes from a flag of the same type.
			if err := now[key].Value.Set(value); err != nil {
				c.log.Error("a setting cannot be changed", "setting", key, "error", err)
				continue
			}
			c.log.Info("a setting has changed", "setting", key, "value", value)
		case c.from[key] != "" || from[key] != "": // the old or the new version of the file has the setting
			late = append(late, key)
		}
	}

	c.apply(now, r)
	if len(late) == 0 {
		c.set("")
		return
	}
	c.set("settings in " + c.file + " have changed that need a restart: " + strings.Join(late, ", "))
	c.log.Warn("settings have changed that need a restart", "file", c.file, "settings", late)
}

// read reads the settings of the file and the environment as a server that starts does.
func (c *configurationFile) read() (map[string]*pflag.Flag, origins, error) {
	command, _, err := newRoot(&options{}).Find([]string{c.command.Name()})
	if err != nil {
		return nil, nil, err
	}
	from, err := configure(command, c.file)
	if err != nil {
		return nil, nil, err
	}
	if n, err := command.Flags().GetInt("access-log"); err != nil || n < 0 {
		return nil, nil, from.problem(accessLogSetting, fault.New(fault.Invalid, "--access-log is %d, must be >= 0", n))
	}
	return configurable(command), from, nil
}

// apply puts the settings of the flags into effect.
func (c *configurationFile) apply(now map[string]*pflag.Flag, r reloading) {
	c.level.Set(levelOf(now[verboseSetting].Value.String() == "true"))
	if n, err := c.command.Flags().GetInt("access-log"); err == nil {
		r.setAccessLog(n)
	}
}

// levelOf returns the level of the log of a server.
func levelOf(verbose bool) slog.Level {
	if verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
