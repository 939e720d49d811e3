package perduretest

import (
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/store"
)

// maxParts is the maximum number of parts of a commit that commitText names.
const maxParts = 5

// commitText describes a commit to a reader who knows workflows but not the store.
func commitText(b *store.Batch) string {
	var parts []string
	for i := range b.Starts {
		parts = append(parts, "start of "+addressText(b.Starts[i].Start.Address))
	}

	for i := range b.Events {
		e := &b.Events[i].Event
		text := strings.ReplaceAll(e.Kind.String(), "_", " ")
		if e.Name != "" {
			text += " " + e.Name
		}
		parts = append(parts, text)
	}

	for i := range b.Closes {
		parts = append(parts, "an execution ends as "+b.Closes[i].Outcome.Status.String())
	}
	if len(b.Timers) > 0 {
		parts = append(parts, "a timer begins")
	}

	if len(b.Messages) > 0 {
		parts = append(parts, "a message leaves")
	}
	if len(parts) == 0 && len(b.Free) > 0 {
		parts = append(parts, "the process shuts down")
	}

	if len(parts) == 0 {
		parts = append(parts, "book-keeping")
	}
	if n := len(parts); n > maxParts {
		parts = append(parts[:maxParts], fmt.Sprintf("and %d more", n-maxParts))
	}
	return strings.Join(parts, ", ")
}
