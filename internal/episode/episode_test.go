package episode_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/episode"
)

var errAway = errors.New("away")

// lines collects what is logged, without times.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.buf.String()), "\n")
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func equal(t *testing.T, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A hundred loops that retry ten times a second for two and a half minutes leave four lines.
func TestOneEpisodeOfManyLoops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out lines
		log := episode.New(out.logger(), "the store cannot be used", "the store can be used again")
		var wg sync.WaitGroup
		for i := range 100 {
			source := log.Source("loop", "commit")
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				source.OK() // nothing has failed yet
				for range 1500 {
					source.Fail(errAway)
					time.Sleep(100 * time.Millisecond)
				}
				source.OK()
				source.OK()
			})
		}

		wg.Wait()
		equal(t, out.all(), []string{
			`level=WARN msg="the store cannot be used" error=away loop=commit`,
			`level=WARN msg="the store cannot be used" error=away loop=commit failures=60001 for=1m0s`,
			`level=WARN msg="the store cannot be used" error=away loop=commit failures=120001 for=2m0s`,
			`level=INFO msg="the store can be used again" loop=commit failures=150000 lasted=2m30s`,
		})
	})
}

// While one loop fails, the success of another does not end the episode; and the next episode
// counts from zero.
func TestEpisodesFollowEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out lines
		log := episode.New(out.logger(), "failed", "over")
		a, b := log.Source(), log.Source("name", "b")
		a.Fail(errAway, "again_in", time.Second)
		b.Fail(errAway)
		a.OK()
		a.Fail(errAway)
		a.OK()
		time.Sleep(time.Second)
		b.OK()
		time.Sleep(time.Minute)
		b.Fail(errors.New("refused"))
		b.Leave()
		b.Leave()

		equal(t, out.all(), []string{
			`level=WARN msg=failed error=away again_in=1s`,
			`level=INFO msg=over name=b failures=3 lasted=1s`,
			`level=WARN msg=failed error=refused name=b`,
			`level=INFO msg="failed: given up" name=b failures=1 lasted=0s`,
		})
	})
}

// A loop that failed once and has been idle since does not keep its episode open. The next failure
// starts a new episode instead of a reminder in the old one.
func TestForgottenSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out lines
		log := episode.New(out.logger(), "the store cannot be used", "the store can be used again")
		lease, read := log.Source("doing", "lease"), log.Source("doing", "read")
		lease.Fail(errAway)
		read.Fail(errAway)
		lease.OK()
		log.Forget() // too early: the loop may try again at any moment
		time.Sleep(3 * time.Minute)
		log.Forget()
		log.Forget()
		time.Sleep(5 * time.Hour)
		read.Fail(errAway)
		read.OK()

		equal(t, out.all(), []string{
			`level=WARN msg="the store cannot be used" error=away doing=lease`,
			`level=INFO msg="the store can be used again" doing=read failures=2 lasted=3m0s`,
			`level=WARN msg="the store cannot be used" error=away doing=read`,
			`level=INFO msg="the store can be used again" doing=read failures=1 lasted=0s`,
		})
	})
}
