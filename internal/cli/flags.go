package cli

import (
	"fmt"
	"strconv"
	"time"
)

// Flags that refuse what makes no sense when they are read, so that nothing has been opened, let
// alone changed, by then.

// spanFlag is a duration that is more than nothing.
type spanFlag struct{ to *time.Duration }

// span is the value of such a flag with its default; zero for none.
func span(to *time.Duration, otherwise time.Duration) spanFlag {
	*to = otherwise
	return spanFlag{to}
}

// String is the default in the help.
func (f spanFlag) String() string {
	if f.to == nil || *f.to == 0 {
		return ""
	}
	return f.to.String()
}

// Type names it in the help.
func (spanFlag) Type() string { return "duration" }

// Set reads what was typed.
func (f spanFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("a duration such as 90m is expected")
	}
	if d <= 0 {
		return fmt.Errorf("it must be more than nothing")
	}
	*f.to = d
	return nil
}

// countFlag is a number that is not negative.
type countFlag struct{ to *int }

func count(to *int, otherwise int) countFlag {
	*to = otherwise
	return countFlag{to}
}

// String is the default in the help.
func (f countFlag) String() string {
	if f.to == nil {
		return ""
	}
	return strconv.Itoa(*f.to)
}

// Type names it in the help.
func (countFlag) Type() string { return "int" }

// Set reads what was typed.
func (f countFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("a number is expected")
	}
	if n < 0 {
		return fmt.Errorf("it must not be negative")
	}
	*f.to = n
	return nil
}
