package cli

import (
	"os"
	"strconv"

	"github.com/charmbracelet/x/term"
)

// Standard returns the standard streams of the process.
func Standard() Streams {
	return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Width: widthOf(os.Stdout), ErrWidth: widthOf(os.Stderr)}
}

// widthOf returns the number of columns of a terminal, or 0 for a pipe or a file.
func widthOf(f *os.File) int {
	const usual = 80
	if !term.IsTerminal(f.Fd()) {
		return 0
	}

	if width, _, err := term.GetSize(f.Fd()); err == nil && width > 0 {
		return width
	}

	// Some terminals do not report their size.
	if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && width > 0 {
		return width
	}
	return usual
}
