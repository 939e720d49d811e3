package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"perdure": runChecked,
		"demo":    demo, "finish": finish, "inuse": inUse, "cart": cartDemo, "chat": chatDemo, "bank": bankDemo,
		"build": build, "newbuild": newBuild, "mute": func() { time.Sleep(time.Millisecond) },
	})
}

// runChecked runs the command line. It checks that JSON output has the documented shape.
func runChecked() {
	var out bytes.Buffer
	s := cli.Standard()
	s.Out = io.MultiWriter(os.Stdout, &out)
	code := cli.MainThroughServer(context.Background(), os.Args[1:], s)
	if err := cli.CheckShape(os.Getenv(shapesVariable), os.Args[1:], out.String()); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 99
	}
	os.Exit(code)
}

// shapesVariable is the environment variable with the path of the page that documents the shapes of
// JSON output. The scripts of the tests read it.
const shapesVariable = "PERDURE_TEST_SHAPES"

var (
	approve = perdure.NewSignal[bool]("approve")
	shop    = perdure.NewWorkflow("shop", func(ctx perdure.WorkflowCtx, what string) (string, error) {
		got, err := perdure.Do(ctx, "fetch", func(context.Context) (string, error) {
			if what == "nothing" {
				return "", perdure.Permanent(errors.New("there is nothing to fetch"))
			}
			return "a " + what, nil
		})
		if err != nil {
			return "", err
		}
		if what == "wait" {
			_, err = approve.Receive(ctx)
		}
		return got, err
	})
)

// demo creates a store with one completed execution, one failed execution and one that waits for a
// signal.
func demo() {
	if err := fill(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func fill(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	app, err := embedded.Open(ctx, url, shop)
	if err != nil {
		return err
	}
	defer app.Close()
	c := app.With(ctx)
	if _, err := shop.Run(c, "lamp", perdure.RawKey("k-1")); err != nil {
		return err
	}

	if _, err := shop.Run(c, "nothing", perdure.RawKey("k-2")); err == nil {
		return errors.New("k-2 should fail")
	}
	waiting, err := shop.Start(c, "wait", perdure.RawKey("k-3"))
	if err != nil {
		return err
	}

	for {
		info, err := app.Executions().Describe(ctx, waiting)
		if err != nil {
			return err
		}
		if info.Reason == "waits for signal approve" {
			return nil
		}
		time.Sleep(time.Millisecond) // until the worker has reported the reason
	}
}

// Every script passes on a store, and on a server that has the store. In short mode every second
// script runs on a store, and the others on a server.
func TestScripts(t *testing.T) {
	t.Parallel()
	page, err := filepath.Abs("../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}

	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(scripts) < 2 {
		t.Fatal(scripts, err)
	}

	for name, through := range map[string]string{"store": "", "server": "yes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := scripts
			if testing.Short() {
				files = nil
				for i, script := range scripts {
					if (i%2 == 1) == (through != "") {
						files = append(files, script)
					}
				}
			}
			testscript.Run(t, testscript.Params{
				Files: files, UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
				// A server is a live node, so it gives other reasons than a store that no process
				// has open.
				Condition: func(name string) (bool, error) {
					if name != "server" {
						return false, fmt.Errorf("unknown condition %q", name)
					}
					return through != "", nil
				},
				Setup: func(e *testscript.Env) error {
					e.Setenv(shapesVariable, page)
					e.Setenv(cli.ThroughVariable, through)
					return nil
				},
			})
		})
	}
}

// build plays the program that created the histories of demo, and answers a deploy check.
func build() {
	fmt.Println("a package of it prints something while it is initialized")
	embedded.AnswerDeployCheck(shop)
	if err := fill("file:must-not-be-opened.db"); err != nil {
		panic(err)
	}
}

// newBuild plays the next build of that program, in which a step has another name.
func newBuild() {
	embedded.Config{Version: "v2"}.AnswerDeployCheck(perdure.NewWorkflow("shop", func(ctx perdure.WorkflowCtx, what string) (string, error) {
		fmt.Println("code that prints does not disturb the answers") //perdure:allow effect it is what the test wants to see
		return perdure.Do(ctx, "get", func(context.Context) (string, error) { return "a " + what, nil })
	}))
}
