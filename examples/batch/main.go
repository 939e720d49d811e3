// Command batch counts the words of many documents in parallel, and writes the result to two of
// three mirrors. It takes the first two mirrors that finish and cancels the third.
//
//	go run ./examples/batch [store URL]
//
// Counting takes one to four seconds per document: 100 ms for each byte. Kill the program during
// that time (kill -9, it prints its process id) and run the same command again. It does not repeat
// a count that the first process has recorded.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type document struct{ Name, Text string }

type upload struct {
	Mirror string
	Words  int
}

type report struct {
	Words   int
	Mirrors []string // mirrors that have the result, in the order in which they finished
}

// library does the work of the steps.
type library struct {
	out   io.Writer
	count func(document) time.Duration // how long a count takes
}

var store = perdure.DeclareActivity[upload, string]("store")

// batch counts all documents at the same time. Each count is a step whose key is the name of the
// document. So a result always belongs to its document, no matter in which order the counts end or
// the documents are listed.
func (l library) batch(ctx perdure.WorkflowCtx, docs []document) (report, error) {
	counts := make([]*perdure.Future[int], len(docs))
	for i, d := range docs {
		counts[i] = perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) {
			return perdure.Do(ctx, "count", func(ctx context.Context) (int, error) { return l.words(ctx, d) }, perdure.StepKey(d.Name))
		})
	}

	// The results are in the order of docs. The first error cancels the other counts.
	all, err := perdure.All(ctx, counts...)
	if err != nil {
		return report{}, err
	}
	total := 0
	for _, n := range all {
		total += n
	}
	var uploads []*perdure.Future[string]
	for _, mirror := range []string{"ann", "bob", "slow"} {
		uploads = append(uploads, store.Go(ctx, upload{mirror, total}))
	}
	// The results are in the order in which the uploads finished. FirstN cancels the other uploads.
	two, err := perdure.FirstN(ctx, 2, uploads...)

	return report{total, two}, err
}

// words simulates work that takes time.
func (l library) words(ctx context.Context, d document) (int, error) {
	if err := pause(ctx, l.count(d)); err != nil {
		return 0, err
	}
	n := len(strings.Fields(d.Text))
	fmt.Fprintf(l.out, "counted %s: %d words\n", d.Name, n)
	return n, nil
}

// upload is a step. When the workflow no longer needs its outcome, the context of the step ends.
func (l library) upload(ctx context.Context, u upload) (string, error) {
	d := map[string]time.Duration{"ann": 100 * time.Millisecond, "bob": 200 * time.Millisecond, "slow": time.Minute}[u.Mirror]
	if err := pause(ctx, d); err != nil {
		fmt.Fprintf(l.out, "mirror %s gives up: %v\n", u.Mirror, context.Cause(ctx))
		return "", err
	}
	fmt.Fprintf(l.out, "mirror %s has it\n", u.Mirror)
	return u.Mirror, nil
}

// pause is like time.Sleep, but ends early if ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func main() {
	url := "file:batch.db"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	fmt.Printf("process %d on %s\n", os.Getpid(), url)
	count := func(d document) time.Duration { return time.Duration(len(d.Text)) * 100 * time.Millisecond }
	if err := run(context.Background(), url, library{os.Stdout, count}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, l library) error {
	batches := perdure.NewWorkflow("batch", l.batch, perdure.Uses(store))
	app, err := embedded.Open(ctx, url, batches, store.Bind(l.upload))
	if err != nil {
		return err
	}
	defer app.Close()

	docs := []document{
		{"proverb", "slow and steady wins the race"},
		{"pangram", "the quick brown fox jumps over the lazy dog"},
		{"motto", "measure twice cut once"},
		{"greeting", "hello world"},
	}

	r, err := batches.Run(app.With(ctx), docs, perdure.RawKey("batch-1"))
	if err != nil {
		return err
	}
	fmt.Fprintf(l.out, "%d words, on %s. Start over with: rm batch.db*\n", r.Words, strings.Join(r.Mirrors, " and "))

	return nil
}
