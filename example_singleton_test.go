package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// One process at a time publishes the messages. The next process continues after the last message
// that was published.
func ExampleSingleton() {
	messages := []string{"hello", "world"}
	published := make(chan string)
	publisher := perdure.NewSingleton("publisher", func(ctx context.Context, at *perdure.Position[int]) error {
		next, err := at.Last()
		if err != nil {
			return err
		}

		for ; next < len(messages); next++ {
			select {
			case published <- messages[next]:
			case <-ctx.Done():
				return nil
			}
			if err := at.Save(context.WithoutCancel(ctx), next+1); err != nil {
				return err
			}
		}

		<-ctx.Done() // all messages are published
		return nil
	})

	app := embedded.MustOpen("memory:", publisher)
	fmt.Println(<-published, <-published)

	// In this example a loop waits for the commit.
	c := app.With(context.Background())
	info, err := publisher.Describe(c)
	for err == nil && info.Position < len(messages) {
		info, err = publisher.Describe(c)
	}
	fmt.Println(info.Position, info.Epoch, info.Holder != "", err)
	fmt.Println(app.Close())
	// Output:
	// hello world
	// 2 1 true <nil>
	// <nil>
}
