package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// termFlags set the delay, the timeout and the attempts of an execution.
type termFlags struct {
	delay, timeout time.Duration
	at             string
	attempts       int
}

func (f *termFlags) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.delay, "start-delay", 0, "run the code this long after the start")
	cmd.Flags().StringVar(&f.at, "start-at", "", "run the code at this time, such as 2026-11-15T09:00:00Z")
	cmd.MarkFlagsMutuallyExclusive("start-delay", "start-at")
	cmd.Flags().DurationVar(&f.timeout, "execution-timeout", 0, "longest time of all runs of the execution together")
	cmd.Flags().IntVar(&f.attempts, "attempts", 0, "most runs of a failing execution, including the first (default: as the workflow declares)")
}

// terms returns the terms that the flags set, or nil if they set none.
func (f *termFlags) terms() (*model.Terms, error) {
	t := model.Terms{Delay: f.delay, Timeout: f.timeout}
	if f.at != "" {
		at, err := time.Parse(time.RFC3339, f.at)
		if err != nil {
			return nil, fault.New(fault.Invalid, "--start-at is %q, must be a time such as 2026-11-15T09:00:00Z", f.at)
		}
		t.NotBefore = model.TimeOf(at)
	}

	switch {
	case f.attempts < 0:
		return nil, fault.New(fault.Invalid, "--attempts is %d, must be >= 0: it counts all runs", f.attempts)
	case f.attempts > 0:
		t.Retry = &model.Retry{MaxAttempts: f.attempts, Given: true}
	}

	if t == (model.Terms{}) {
		return nil, nil
	}
	return &t, nil
}

// termRows describes the terms of an execution that are set.
func termRows(d *api.Description) (rows [][]string) {
	s := &d.Start
	if !s.Begins.IsZero() {
		rows = append(rows, []string{"Begins", stamp(s.Begins)})
	}
	if !s.Expires.IsZero() {
		rows = append(rows, []string{"Times out", stamp(s.Expires)})
	}

	if n := s.Tries(); n > 1 || s.Terms != nil && s.Terms.Retry != nil {
		text := fmt.Sprint(n)
		if s.Terms != nil && s.Terms.Retry != nil && s.Terms.Retry.MaxAttempts > 0 {
			text = fmt.Sprintf("%d of %d", n, s.Terms.Retry.MaxAttempts)
		}
		if s.Cause != nil {
			text += ", after: " + s.Cause.Message
		}
		rows = append(rows, []string{"Attempt", text})
	}

	return rows
}
