package cli

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
)

// reloadEvery is how often a server checks whether its files have changed.
const reloadEvery = 10 * time.Second

// noteFunc records a change in the audit log.
type noteFunc func(ctx context.Context, e api.AuditEntry) error

// reloading is one occasion on which a server reads its files again.
type reloading struct {
	// asked says that an operator has sent SIGHUP. If asked is false, this is a periodic check.
	asked bool
	note  noteFunc
	// setAccessLog changes which requests the server logs.
	setAccessLog func(every int)
}

// reloadPart is something that a server reads again while it runs. If the new content cannot be
// used, the server keeps the old content.
type reloadPart interface {
	reload(ctx context.Context, r reloading)
	// problems returns why the server does not use the content of its files.
	problems() []string
}

// reloader reads the parts of a server again.
type reloader struct {
	log   *slog.Logger
	parts []reloadPart
}

// problems returns the problems of all parts.
func (r *reloader) problems() (all []string) {
	for _, p := range r.parts {
		all = slices.Concat(all, p.problems())
	}
	return all
}

// watch reads all parts again from time to time, and when a signal arrives, until ctx ends.
func (r *reloader) watch(ctx context.Context, signals <-chan os.Signal, how reloading) {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		how.asked = false
		select {
		case <-ctx.Done():
			return
		case <-signals:
			how.asked = true
			r.log.Info("SIGHUP: the server reads its settings again")
		case <-tick.C:
		}

		for _, p := range r.parts {
			p.reload(ctx, how)
		}
		if how.asked {
			r.log.Info("the settings were read again", "problems", len(r.problems()))
		}
	}
}

// trouble says why a server does not use what it has read. It is empty if there is no problem.
type trouble struct {
	mu   sync.Mutex
	text string
}

// set changes the problem, and reports whether it differs from the previous one.
func (t *trouble) set(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.text
	t.text = text
	return was != text
}

func (t *trouble) problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text == "" {
		return nil
	}
	return []string{t.text}
}
