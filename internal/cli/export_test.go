package cli

import (
	"fmt"
	"slices"
	"strings"
)

// CheckShape compares the JSON output of a command with the shape that the page documents.
func CheckShape(page string, args []string, out string) error {
	if !slices.Contains(args, "json") || slices.Contains(args, "--fields") {
		return nil
	}
	cmd, rest, err := newRoot(&options{}).Find(args)
	if err != nil || slices.Contains(args, "--follow") || slices.Contains(args, "-f") && cmd.Name() == "logs" {
		return err
	}

	s, err := loadShapes(page)
	if err != nil {
		return err
	}

	command := strings.TrimPrefix(cmd.CommandPath(), "perdure ")
	if dry := command + " --dry-run --query"; s.commands[dry] != "" && slices.Contains(args, "--query") && slices.Contains(args, "--dry-run") {
		command = dry
	}
	for _, arg := range args {
		if _, ok := s.commands[command+" "+arg]; ok {
			command += " " + arg
			break
		}
	}

	switch {
	case s.commands[command] == "none":
		return nil
	case command == "dlq requeue" && strings.HasPrefix(rest[0], "-"):
		command += " --all" // the shape with --all covers all other flags
	}

	if err := s.check(command, []byte(out)); err != nil {
		return fmt.Errorf("perdure %s: %w:\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
