package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
	"github.com/perdure/perdure/perduretest"
)

// envStore names a store. If it is set, the test binary runs the program itself on that store.
const envStore = "PERDURE_EXAMPLE_BANK"

func TestMain(m *testing.M) {
	if url := os.Getenv(envStore); url != "" {
		say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
		if err := run(context.Background(), url, hesitation, say); err != nil {
			say("%v", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hesitation is long enough for the test to kill the process.
const hesitation = 2 * time.Second

const slowly = "transfer t-slow has taken 100 cents from bob and hesitates for "

func end() []string {
	return []string{
		"transfer t-poor: insufficient funds", "review: bob has 999.91",
		"ann has 19 cents", "bob has 99891 cents", "cid has 50090 cents", "together: 150000 cents",
	}
}

func TestBank(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, url := range map[string]string{"memory": "memory:", "file": "file:" + filepath.Join(dir, "bank.db")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for life := range 2 { // on the file, the second run finds that everything is done
				var out printed.Text
				if err := run(t.Context(), url, time.Millisecond, out.Say); err != nil {
					t.Fatal(err)
				}
				want := end()
				if life == 0 || name == "memory" {
					want = slices.Insert(want, 2, slowly+"1ms")
				}
				if diff := printed.Diff(out.String(), want...); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// The test kills the program between the two halves of a transfer, while both accounts are locked.
// The next process continues at that point. It does not take the money again, and adds it to the
// other account.
func TestKilledInTheMiddleOfATransfer(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "bank.db")
	first := exec.Command(os.Args[0])
	first.Env = append(os.Environ(), envStore+"="+url)
	first.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := first.Start(); err != nil {
		t.Fatal(err)
	}

	killed := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), slowly) {
			killed = true
			if err := first.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := first.Wait(); err == nil || !killed {
		t.Fatalf("the first process was not killed in the middle: %v", err)
	}
	var out printed.Text
	if err := run(t.Context(), url, hesitation, out.Say); err != nil {
		t.Fatal(err)
	}

	// The notice is printed at least once. If a crash happens between the print and its record, it
	// is printed twice.
	if got := strings.Replace(out.String(), slowly+hesitation.String()+"\n", "", 1); printed.Diff(got, end()...) != "" {
		t.Error(printed.Diff(got, end()...))
	}
}

// No crash of the process, at any time, creates or loses a cent.
func TestNoCentIsLost(t *testing.T) {
	t.Parallel()
	perduretest.Explore(t, func() perduretest.Scenario[[2]int] {
		return perduretest.Scenario[[2]int]{
			Definitions: program(func(string, ...any) {}),
			Drive: func(env *perduretest.Env) (left [2]int, err error) {
				c := env.With()
				if _, err := deposit.Call(c, "ann", 100, perdure.RequestID("opening")); err != nil {
					return left, err
				}
				if _, err := move.Run(c, transfer{ID: "t", From: "ann", To: "bob", Cents: 30}); err != nil {
					return left, err
				}
				for i, owner := range []string{"ann", "bob"} {
					if left[i], err = balance.Call(c, owner, perdure.Void{}); err != nil {
						return left, err
					}
				}
				return left, nil
			},
		}
	})
}
