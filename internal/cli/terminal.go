package cli

import (
	"os"
	"strconv"

	"github.com/charmbracelet/x/term"
)

// Standard is the terminal, or the pipes, that the process was started with.
func Standard() Streams {
	return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Width: widthOf(os.Stdout)}
}

// widthOf is the number of columns of a terminal, and 0 of a pipe or a file.
func widthOf(f *os.File) int {
	const usual = 80
	if !term.IsTerminal(f.Fd()) {
		return 0
	}

	if width, _, err := term.GetSize(f.Fd()); err == nil && width > 0 {
		return width
	}

	// Some terminals do not tell their size.
	if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && width > 0 {
		return width
	}
	return usual
}
