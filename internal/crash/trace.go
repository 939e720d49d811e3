package crash

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
)

// Call is one call of a process to the store.
type Call struct {
	At      time.Duration // since the start of the trace
	Process int
	Method  faultstore.Method
	Detail  string
	Err     error
}

// Trace has the calls of all processes to a store. No call to the store happens under its mutex.
type Trace struct {
	begin time.Time

	mu    sync.Mutex
	calls []Call
}

// NewTrace starts a trace.
func NewTrace() *Trace { return &Trace{begin: time.Now()} }

func (t *Trace) note(c Call) {
	if t == nil {
		return
	}
	c.At = time.Since(t.begin)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, c)
}

// Elapsed returns the time since the start of the trace.
func (t *Trace) Elapsed() time.Duration { return time.Since(t.begin) }

// Since returns the calls from the given index to the last.
func (t *Trace) Since(from int) []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls[from:])
}

// Commits returns how many of the calls were commits.
func (t *Trace) Commits() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for i := range t.calls {
		if t.calls[i].Method == faultstore.Commit {
			n++
		}
	}
	return n
}

// String shows the calls. After the first 31 calls, it leaves out successful renewals of leases.
func (t *Trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for i, c := range t.calls {
		if c.Method == faultstore.Renew && c.Err == nil && i > 30 {
			continue
		}
		fmt.Fprintf(&b, "  %4d %9s  process %d  %s%s", i+1, c.At, c.Process, c.Method, c.Detail)
		if c.Err != nil {
			fmt.Fprintf(&b, ": %v", c.Err)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Describe says what the commit of a batch writes.
func Describe(b *store.Batch) string {
	var s strings.Builder
	fmt.Fprintf(&s, "lane %d batch %d:", b.Lane.Lane, b.Number)
	for _, part := range []struct {
		n    int
		name string
	}{
		{len(b.Starts), "starts"},
		{len(b.Closes), "closes"},
		{len(b.Marks), "marks"},
		{len(b.Events), "events"},
		{len(b.StopTimers) + len(b.StopAll), "timers stopped"},
		{len(b.Timers), "timers"},
		{len(b.Taken), "taken"},
		{len(b.Mailbox), "mailbox"},
		{len(b.Entities), "entities"},
		{len(b.Messages), "messages"},
		{len(b.Cursors), "cursors"},
		{len(b.Inbox), "inbox"},
		{len(b.Deferred), "deferred"},
		{len(b.Requests), "requests"},
		{len(b.Forgets), "forgotten requests"},
		{len(b.Free), "freed"},
	} {
		if part.n > 0 {
			fmt.Fprintf(&s, " %d %s", part.n, part.name)
		}
	}

	for i := range b.Events {
		fmt.Fprintf(&s, " [%d %s %s]", b.Events[i].Event.Seq, b.Events[i].Event.Kind, b.Events[i].Event.Name)
	}
	return s.String()
}
