package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/spelling"
)

// If the number of arguments is wrong, the library only says how many there were. The functions
// here add the expected arguments. For a name that does not exist, they add the nearest known name.

// explainArguments makes a command print its usage if the number of its arguments is wrong.
func explainArguments(cmd *cobra.Command) {
	check := cmd.Args
	if check == nil || cmd.HasSubCommands() {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil || fault.KindOf(err) != fault.Internal { // the error of the command says more
			return err
		}

		given := fmt.Sprintf("%d arguments", len(args))
		if len(args) == 1 {
			given = fmt.Sprintf("the argument %.100q", args[0])
		}
		return fmt.Errorf("%s does not work with %s; usage: %s", cmd.Name(), given, cmd.UseLine())
	}
}

// unknownCommand returns the error for a word that is not a command of a group.
func unknownCommand(group *cobra.Command, word string) error {
	var names []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %.100q for %q%s", word, group.CommandPath(), didYouMean(word, names, ""))
}

// unknownWord finds the word in the error of the library for the first word of a command line.
var unknownWord = regexp.MustCompile(`^unknown command "([^"]*)" for "perdure"`)

// explainMistake adds the nearest known command to an error of the library.
func explainMistake(root *cobra.Command, err error) error {
	if m := unknownWord.FindStringSubmatch(err.Error()); m != nil && fault.KindOf(err) == fault.Internal {
		return unknownCommand(root, m[1])
	}
	return err
}

// explainFlag adds the nearest known flag to the error about a flag.
func explainFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}

	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return fmt.Errorf("%w%s", err, didYouMean(unknown.GetSpecifiedName(), names, "--"))
}

// didYouMean suggests the known word that is nearest to a word. It returns an empty text if none is
// near.
func didYouMean(word string, known []string, prefix string) string {
	if len(known) == 0 {
		return ""
	}
	if near := spelling.Nearest(word, known); spelling.Distance(strings.ToLower(word), near) <= (len(word)+2)/3 {
		return "; did you mean " + prefix + near + "?"
	}
	return ""
}
