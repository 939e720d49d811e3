package cli_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

var (
	proceed = perdure.NewSignal[bool]("proceed")
	move    = perdure.NewWorkflow("move", func(ctx perdure.WorkflowCtx, cents int) (string, error) {
		return "moved", ctx.Lock(perdure.LockSet{accounts.Ref("b"), accounts.Ref("a")}, func(ctx perdure.WorkflowCtx) error {
			if _, err := deposit.Call(ctx, "a", money{cents}); err != nil {
				return err
			}
			if _, err := proceed.Receive(ctx); err != nil {
				return err
			}
			_, err := deposit.Call(ctx, "a", money{-cents})
			return err
		})
	})
	saving = perdure.NewWorkflow("saving", func(ctx perdure.WorkflowCtx, cents int) (int, error) { return deposit.Call(ctx, "b", money{cents}) })
)

// contend lets one execution lock two accounts while two other executions wait for them.
func contend(t *testing.T, app *perdure.App) {
	t.Helper()
	c := app.With(t.Context())
	until := func(x perdure.Target, want string) {
		t.Helper()
		// Wait until the worker or the owner of the entity has reported the state.
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			info, err := app.Executions().Describe(t.Context(), x)
			if err == nil && strings.Contains(info.Reason, want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("it %s, %v; want %q", info.Reason, err, want)
			}
		}
	}
	for i, want := range []string{"signal proceed", "held by move/t-1"} {
		x, err := move.Start(c, 1, perdure.RawKey(fmt.Sprint("t-", i+1)))
		if err != nil {
			t.Fatal(err)
		}
		until(x, want)
	}

	x, err := saving.Start(c, 5, perdure.RawKey("s-1"))
	if err != nil {
		t.Fatal(err)
	}
	until(x, "answer of account/b")
}

// epochs returns the epochs of all held locks, by key.
func epochs(t *testing.T, out string) map[string]string {
	t.Helper()
	var list []struct {
		Key   string
		Epoch int64
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	all := map[string]string{}
	for _, l := range list {
		all[l.Key] = strconv.FormatInt(l.Epoch, 10)
	}
	return all
}

// wantLocks checks the locks of contend, and takes one away.
func wantLocks(t *testing.T, url string) {
	t.Helper()
	do := on(t, url)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"lock list", 0, "ENTITY HELD BY RUN SECTION EPOCH SINCE account/a move/t-1 run_"},
		{"lock list account --prefix b", 0, "account/b move/t-1"},
		{"lock list --limit 1", 0, "There are more; add --limit 0 to list all"},
		{"lock list shelf -o json", 0, "[]"},
		{"lock waiters account/a", 0, "# EXECUTION RUN SECTION SINCE 1 move/t-2 run_"},
		{"lock waiters account/a", 0, "account/a is locked by move/t-1"},
		{"lock waiters account/b", 0, "No execution waits for its lock"},
		{"lock waiters account/a -o json", 0, `"from": "move/t-2"`},
		{"lock waiters account/x", 0, "account/x is not locked"},
		{"lock waiters account", 2, "write entity/key"},
		{"entity list --locked", 0, "move/t-1"},
		{"entity show account/a", 0, "Locked by move/t-1, run_"},
		{"entity show account/a", 0, "lock from move/t-2"},
		{"entity show account/b", 0, "call deposit from saving/s-1"},
		{"entity show account/b", 0, "it waits for the lock of account/b, held by move/t-1 (run_"},
		{"workflow explain move/t-1", 0, "It waits for signal proceed."},
		{"workflow explain move/t-2", 0, "It waits for the lock of account/a, held by move/t-1 (run_"},
		{"workflow explain saving/s-1", 0, "It waits for the answer of account/b to call deposit."},
		{"workflow explain saving/s-1", 0, "It waits for the lock of account/b, held by move/t-1 (run_"},
		{"workflow show move/t-1", 0, "account/a, account/b"},
		{"workflow show move/t-1", 0, "account/a, epoch "},
		{"workflow show move/t-1 -o json", 0, `"kind": "lock_granted"`},
		{"workflow show move/t-1 -o json", 0, `"locks": [ "account/a", "account/b" ]`},
		{"workflow show move/t-1 -o json", 0, `"section": `},
		{"lock release account/a", 2, "its further calls"},
		{"lock release account/x", 3, "account/x is not locked"},
		{"lock release account/x --force", 3, "is not locked"},
		{"lock release account/a --epoch 7", 4, "locked by another section"},
		{"lock release account/a --epoch -7", 2, "below zero"},
		{"lock release account/a --epoch 7 --force", 2, "none of the others can be"},
	} {
		out, complaints, code := perdureOn(t, url, strings.Fields(c.args)...)
		if got := strings.Join(strings.Fields(out), " ") + " " + complaints; code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("perdure %s: exit %d, want %d and %q:\n%s\n%s", c.args, code, c.code, c.want, out, complaints)
		}
	}

	held := epochs(t, do("", 0, "lock", "list", "-o", "json"))
	if len(held) != 2 {
		t.Fatalf("locks %v", held)
	}
	do("--epoch "+held["a"]+" takes the lock", 2, "lock", "release", "account/a")
	do("took the lock of account/a from move/t-1", 0, "lock", "release", "account/a", "--epoch", held["a"])
	do("", 0, "lock", "release", "account/b", "--force", "-o", "json")
	do("", 4, "lock", "release", "account/a", "--epoch", held["a"]) // move/t-2 holds it now
}

// wantAfterRelease lets the old holder and the new holder of a released lock continue.
func wantAfterRelease(t *testing.T, app *perdure.App) {
	t.Helper()
	c := app.With(t.Context())
	for key, want := range map[string]string{"t-1": "no longer holds its lock", "t-2": ""} {
		x := move.Execution(perdure.RawKey(key))
		if err := proceed.Send(c, x, true); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Result(c); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s ended with %v, want %q", key, err, want)
		}
	}
	if n, err := saving.Execution(perdure.RawKey("s-1")).Result(c); n != 5 || err != nil {
		t.Errorf("saving: %d, %v", n, err)
	}
}

// The locks of a file outlive the program that had the file open.
func TestLocks(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "x.db")
	open := func() *perdure.App {
		app, err := embedded.Open(t.Context(), url, accounts, move, saving)
		if err != nil {
			t.Fatal(err)
		}
		return app
	}

	app := open()
	contend(t, app)
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	wantLocks(t, url)
	app = open()
	wantAfterRelease(t, app)
	if err := app.Close(); err != nil {
		t.Error(err)
	}
	if held := on(t, url)("", 0, "lock", "list", "-o", "json"); strings.TrimSpace(held) != "[]" {
		t.Errorf("locks are left: %s", held)
	}
}

// A command asks a running program to release a lock.
func TestLocksBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	app, err := embedded.Config{AllowUnsafe: true, IdleAfter: time.Millisecond}.Open(t.Context(), url, accounts, move, saving)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	contend(t, app)

	for _, x := range []string{"move/t-1", "move/t-2", "saving/s-1"} {
		// Wait until the execution has left the memory of its owner and the store has its reason.
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			if out, _, _ := perdureOn(t, url, "workflow", "explain", x); strings.Contains(out, "waits for") || time.Now().After(end) {
				break
			}
		}
	}

	wantLocks(t, url)
	wantAfterRelease(t, app)
}
