package cli

import (
	"fmt"
	"strconv"
	"time"
)

// These flags reject impossible values while the command line is parsed, before the command opens
// or changes anything.

// spanFlag is a duration that must be positive.
type spanFlag struct{ to *time.Duration }

// span returns a flag for a positive duration. otherwise is its default; zero means none.
func span(to *time.Duration, otherwise time.Duration) spanFlag {
	*to = otherwise
	return spanFlag{to}
}

// String returns the default for the help.
func (f spanFlag) String() string {
	if f.to == nil || *f.to == 0 {
		return ""
	}
	return f.to.String()
}

// Type returns the type for the help.
func (spanFlag) Type() string { return "duration" }

// Set parses the typed value.
func (f spanFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("must be a duration such as 90m")
	}
	if d <= 0 {
		return fmt.Errorf("must be > 0")
	}
	*f.to = d
	return nil
}

// spanOrNone is a flag for a positive duration, or 0 for none.
type spanOrNone struct{ spanFlag }

// Set parses the typed value.
func (f spanOrNone) Set(text string) error {
	if d, err := time.ParseDuration(text); err == nil && d == 0 {
		*f.to = 0
		return nil
	}
	return f.spanFlag.Set(text)
}

// countFlag is a number that must not be negative.
type countFlag struct{ to *int }

func count(to *int, otherwise int) countFlag {
	*to = otherwise
	return countFlag{to}
}

// String returns the default for the help.
func (f countFlag) String() string {
	if f.to == nil {
		return ""
	}
	return strconv.Itoa(*f.to)
}

// Type returns the type for the help.
func (countFlag) Type() string { return "int" }

// Set parses the typed value.
func (f countFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("must be a number")
	}
	if n < 0 {
		return fmt.Errorf("must be >= 0")
	}
	*f.to = n
	return nil
}
