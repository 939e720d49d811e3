// Package effects does input and output in workflow code.
package effects

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/perdure/perdure"
)

func wrongFile(ctx perdure.WorkflowCtx, name string) ([]byte, error) {
	return os.ReadFile(name) // want `os\.ReadFile in workflow code: it happens again on every replay; move it into perdure\.Do or an activity`
}

func wrongEnvironment(ctx perdure.WorkflowCtx, _ int) (string, error) {
	return os.Getenv("REGION"), nil // want `os\.Getenv in workflow code: it may be different on replay, and on another machine; pass it in with the input`
}

func wrongArguments(ctx perdure.WorkflowCtx, _ int) (int, error) {
	return len(os.Args), nil // want `os\.Args in workflow code: it may be different`
}

func wrongHTTP(ctx perdure.WorkflowCtx, url string) (int, error) {
	r, err := http.Get(url) // want `http\.Get in workflow code`
	if err != nil {
		return 0, err
	}
	return r.StatusCode, nil
}

func wrongClient(ctx perdure.WorkflowCtx, c *http.Client) (int, error) {
	_, err := c.Get("https://example.com") // want `http\.Client\.Get in workflow code`
	return 0, err
}

func wrongSQL(ctx perdure.WorkflowCtx, db *sql.DB) (int, error) {
	_, err := db.Exec("delete from t") // want `sql\.DB\.Exec in workflow code`
	return 0, err
}

func wrongPrint(ctx perdure.WorkflowCtx, _ int) (int, error) {
	fmt.Println("hello")               // want `fmt\.Println in workflow code: it is printed again on every replay; use ctx\.Log\(\)`
	fmt.Fprintln(os.Stderr, "hello")   // want `os\.Stderr in workflow code`
	slog.Info("hello", "where", "now") // want `slog\.Info in workflow code`
	return 0, nil
}

func load(name string) string {
	b, _ := os.ReadFile(name)
	return string(b)
}

func wrongHelper(ctx perdure.WorkflowCtx, name string) (string, error) {
	return load(name), nil // want `load reaches os\.ReadFile \(effects\.go:\d+\) in workflow code`
}

type store interface {
	Save(ctx context.Context, v string) error
}

// The check does not see through an interface, but a method that takes a context waits for
// something.
func wrongContext(ctx perdure.WorkflowCtx, s store) (int, error) {
	return 0, s.Save(context.Background(), "x") // want `a context\.Context passed to s\.Save in workflow code: workflow code has no context\.Context`
}

type service struct {
	ctx context.Context
	store
}

func (s *service) wrongContext(ctx perdure.WorkflowCtx, v string) (int, error) {
	return 0, s.Save(s.ctx, v) // want `a context\.Context passed to s\.Save`
}

// ---- right

func right(ctx perdure.WorkflowCtx, s store) (string, error) {
	ctx.Log().Info("saving", "what", "x")
	v := fmt.Sprintf("%s-%d", strings.ToUpper("x"), 1)
	return perdure.Do(ctx, "save", func(c context.Context) (string, error) {
		fmt.Println("saving")
		return v, s.Save(c, v+os.Getenv("SUFFIX"))
	})
}

func rightStatus(ctx perdure.WorkflowCtx, code int) (string, error) {
	return http.StatusText(code), nil
}

func rightErrors(ctx perdure.WorkflowCtx, _ int) (bool, error) { return os.IsNotExist(ctx.Err()), nil }
