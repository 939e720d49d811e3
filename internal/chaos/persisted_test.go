package chaos_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
)

// envPersisted makes the process serve a persisted RPC. With "dies" the process calls the RPC and
// dies in its body. With "lives" it runs the remaining call.
const envPersisted = "PERDURE_CHAOS_PERSISTED"

var (
	hooks  = perdure.NewService("hooks")
	notice = perdure.DeclareRPC[string, string]("hooks", "notice", perdure.Persisted())
)

// hookDefinitions returns the definitions of the process. The body prints a line for each call, and
// kills the process if dies is set.
func hookDefinitions(dies bool) perdure.Group {
	return perdure.Group{hooks, notice.Bind(func(ctx perdure.EntityCtx, in string) (string, error) {
		fmt.Println("made", ctx.Key(), in)
		if dies {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // this process must not do anything after this
		}
		return in, nil
	})}
}

// callAndDie calls the RPC from the process that runs it.
func callAndDie(ctx context.Context, app *perdure.App, terminate <-chan os.Signal) {
	if os.Getenv(envPersisted) == "dies" {
		_, err := notice.Call(app.With(ctx), "k", "hello")
		fmt.Println("the call ended:", err)
	}
	<-terminate
}

// The engine stores a call of a persisted RPC before the call runs, even if the caller is in the
// same process. The test kills the process in the body, and the next process runs the call.
func TestPersistedCallOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"sqlite": "file:" + filepath.Join(t.TempDir(), "hooks.db"), "postgres": pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			first := spawn(t, url, duty{l, 0, 10 * time.Second}, envPersisted+"=dies")
			first.awaitLine("made k hello", 3*time.Minute)
			<-first.done
			if how := first.ending(); !how.Signaled() {
				t.Fatalf("the first process was not killed: %v\n%s", how, first.text())
			}
			second := spawn(t, url, duty{l, 0, 10 * time.Second}, envPersisted+"=lives")
			second.awaitLine("made k hello", 3*time.Minute)
			second.retire(3 * time.Minute)
		})
	}
}
