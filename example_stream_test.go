package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A log streams its lines. The code of the stream waits while the caller is busy, and ends when the
// caller leaves the loop.
func ExampleStream() {
	logs := perdure.NewEntity[[]string]("log")
	write := perdure.NewOperation(logs, "write", func(_ perdure.EntityCtx, lines *[]string, line string) (int, error) {
		*lines = append(*lines, line)
		return len(*lines), nil
	})
	tail := perdure.NewStream(logs, "tail", func(_ context.Context, lines []string, from int, send func(string) error) error {
		for _, line := range lines[from:] {
			if err := send(line); err != nil {
				return err // the caller has left
			}
		}
		return nil
	})

	app := embedded.MustOpen("memory:", logs)
	defer app.Close()
	c := app.With(context.Background())
	for _, line := range []string{"start", "request", "stop"} {
		if _, err := write.Call(c, "web-1", line); err != nil {
			panic(err)
		}
	}

	for line, err := range tail.Read(c, "web-1", 1) {
		if err != nil {
			panic(err)
		}
		fmt.Println(line)
	}
	// Output:
	// request
	// stop
}
