// Command counter counts visits of pages with an entity. Each page has its own count, which
// outlives the program.
//
//	go run ./examples/counter [store URL]
//
// Run it again: the counts continue.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// page is the state of an entity. Its key is the path.
type page struct{ Visits int }

var (
	pages = perdure.NewEntity[page]("page")
	visit = perdure.NewOperation(pages, "visit", func(_ perdure.EntityCtx, p *page, n int) (int, error) {
		p.Visits += n // operations of one key never overlap, so no visit is lost or counted twice
		return p.Visits, nil
	})
	reset = perdure.NewOperation(pages, "reset", func(ctx perdure.EntityCtx, p *page, _ perdure.Void) (int, error) {
		ctx.Delete() // the next visit gets the zero value
		return p.Visits, nil
	})
)

func main() {
	url := "file:counter.db"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	if err := run(context.Background(), url, say); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, say func(format string, args ...any)) error {
	app, err := embedded.Open(ctx, url, pages)
	if err != nil {
		return err
	}
	defer app.Close()
	c := app.With(ctx)

	for _, path := range []string{"/home", "/about", "/home"} {
		n, err := visit.Call(c, path, 1)
		if err != nil {
			return err
		}
		say("%s was visited %d times", path, n)
	}

	// A read never waits for operations.
	home, exists, err := pages.Get(c, "/home")
	if err != nil {
		return err
	}
	say("/home: %d, exists: %t", home.Visits, exists)

	n, err := reset.Call(c, "/about", perdure.Void{})
	if err != nil {
		return err
	}
	_, exists, err = pages.Get(c, "/about")
	say("/about had %d, exists: %t", n, exists)
	return err
}
