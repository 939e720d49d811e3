package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// An entity is a value per key that only its operations change, one at a time. A program does not
// create an entity: the first operation of a key gets the zero value.
func ExampleEntity() {
	type stock struct{ Pieces int }
	shelves := perdure.NewEntity[stock]("shelf")
	put := perdure.NewOperation(shelves, "put", func(_ perdure.EntityCtx, s *stock, n int) (int, error) {
		s.Pieces += n
		return s.Pieces, nil
	})

	take := perdure.NewOperation(shelves, "take", func(_ perdure.EntityCtx, s *stock, n int) (int, error) {
		s.Pieces -= n
		if s.Pieces < 0 {
			return 0, errors.New("there are not so many") // the state does not change
		}
		return s.Pieces, nil
	})

	app := embedded.MustOpen("memory:", shelves)
	defer app.Close()
	c := app.With(context.Background())
	fmt.Println(put.Call(c, "lamps", 3))
	fmt.Println(take.Call(c, "lamps", 5))
	fmt.Println(take.Call(c, "lamps", 1))
	fmt.Println(shelves.Get(c, "lamps"))
	fmt.Println(shelves.Get(c, "desks"))
	// Output:
	// 3 <nil>
	// 0 there are not so many
	// 2 <nil>
	// {2} true <nil>
	// {0} false <nil>
}

// A workflow calls operations as steps. Each step takes effect once, even after crashes. The
// workflow can handle the error of an operation.
func ExampleOperation() {
	type seats struct{ Free int }
	trains := perdure.NewEntity[seats]("train")
	add := perdure.NewOperation(trains, "add", func(_ perdure.EntityCtx, s *seats, n int) (int, error) {
		s.Free += n
		return s.Free, nil
	})

	book := perdure.NewOperation(trains, "book", func(_ perdure.EntityCtx, s *seats, n int) (int, error) {
		if s.Free < n {
			return s.Free, errors.New("it is full")
		}
		s.Free -= n
		return s.Free, nil
	})

	journey := perdure.NewWorkflow("journey", func(ctx perdure.WorkflowCtx, trains []string) (string, error) {
		why := "the first one"
		for _, train := range trains {
			left, err := book.Call(ctx, train, 2)
			if err == nil {
				return fmt.Sprintf("%s (%s), which has %d seats left", train, why, left), nil
			}
			why = "because " + train + " says: " + err.Error()
		}
		return "", errors.New("no train has a seat")
	})

	app := embedded.MustOpen("memory:", trains, journey)
	defer app.Close()
	c := app.With(context.Background())
	for train, seats := range map[string]int{"morning": 1, "evening": 4} {
		if err := add.Send(c, train, seats); err != nil { // returns when the call is stored
			panic(err)
		}
	}

	fmt.Println(journey.Run(c, []string{"morning", "evening"}))
	// Output: evening (because morning says: it is full), which has 2 seats left <nil>
}

// A view gets a copy of the committed state. It waits neither for operations nor for locks.
func ExampleNewView() {
	type list struct{ Items []string }
	lists := perdure.NewEntity[list]("list")
	add := perdure.NewOperation(lists, "add", func(_ perdure.EntityCtx, l *list, item string) (int, error) {
		l.Items = append(l.Items, item)
		return len(l.Items), nil
	})

	last := perdure.NewView(lists, "last", func(l list, _ perdure.Void) (string, error) {
		if len(l.Items) == 0 {
			return "", errors.New("it is empty")
		}
		return l.Items[len(l.Items)-1], nil
	})

	app := embedded.MustOpen("memory:", lists)
	defer app.Close()
	c := app.With(context.Background())
	for _, item := range []string{"milk", "bread"} {
		// a repetition with the same id changes nothing
		if _, err := add.Call(c, "shopping", item, perdure.RequestID(item)); err != nil {
			panic(err)
		}
	}

	fmt.Println(last.Call(c, "shopping", perdure.Void{}))
	fmt.Println(last.Call(c, "reading", perdure.Void{}))
	// Output:
	// bread <nil>
	//  it is empty
}

// The engine stores the new state, the reply and the messages of an operation together or not at
// all.
func ExampleEntityCtx() {
	type account struct{ Cents int }
	order := perdure.NewSignal[int]("order")
	review := perdure.NewWorkflow("review", func(ctx perdure.WorkflowCtx, owner string) (string, error) {
		cents, err := order.Receive(ctx)
		return fmt.Sprintf("%s has %d", owner, cents), err
	})

	accounts := perdure.NewEntity[account]("account")
	deposit := perdure.NewOperation(accounts, "deposit", func(ctx perdure.EntityCtx, a *account, cents int) (int, error) {
		a.Cents += cents
		if a.Cents > 1000 {
			// an operation may start an execution, but never wait for it
			_, err := review.Start(ctx, ctx.Key(), perdure.RawKey(ctx.Key()), order.With(a.Cents))
			return a.Cents, err
		}
		return a.Cents, nil
	})

	shut := perdure.NewOperation(accounts, "close", func(ctx perdure.EntityCtx, a *account, _ perdure.Void) (string, error) {
		ctx.Delete()
		return fmt.Sprintf("%s existed: %v", ctx.Key(), ctx.Exists()), nil
	})

	app := embedded.MustOpen("memory:", accounts, review)
	defer app.Close()
	c := app.With(context.Background())
	if _, err := deposit.Call(c, "ann", 1500); err != nil {
		panic(err)
	}
	fmt.Println(review.Run(c, "ann", perdure.RawKey("ann"))) // attaches to the execution, or starts it if the message has not arrived yet
	fmt.Println(shut.Call(c, "ann", perdure.Void{}))
	fmt.Println(shut.Call(c, "ann", perdure.Void{}))
	// Output:
	// ann has 1500 <nil>
	// ann existed: true <nil>
	// ann existed: false <nil>
}

// The program declares operations that refer to each other, and binds them to their code when it
// opens the app.
func ExampleBindOperation() {
	type tally struct{ Passed int }
	players := perdure.NewEntity[tally]("player")
	toss := perdure.DeclareOperation[int, int]("player", "toss")
	over := perdure.NewSignal[int]("over")

	game := perdure.NewWorkflow("game", func(ctx perdure.WorkflowCtx, rounds int) (int, error) {
		if err := toss.Send(ctx, "ann", rounds); err != nil {
			return 0, err
		}
		return over.Receive(ctx)
	})

	app := embedded.MustOpen("memory:", game, perdure.BindOperation(players, toss, func(ctx perdure.EntityCtx, t *tally, left int) (int, error) {
		t.Passed++
		if left == 0 {
			return t.Passed, over.Send(ctx, game.Execution(perdure.RawKey("g")), t.Passed)
		}
		other := map[string]string{"ann": "bob", "bob": "ann"}[ctx.Key()]
		return t.Passed, toss.Send(ctx, other, left-1)
	}))
	defer app.Close()
	fmt.Println(game.Run(app.With(context.Background()), 6, perdure.RawKey("g")))
	// Output: 4 <nil>
}

// A service has no state, and the engine stores nothing for it unless an RPC is Persisted.
func ExampleService() {
	var mu sync.Mutex
	names := map[string]string{"u-1": "ann"} // a cache; the data itself is elsewhere
	users := perdure.NewService("users", perdure.Concurrency(4))
	profile := perdure.NewRPC(users, "profile", func(ctx perdure.EntityCtx, _ perdure.Void) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		return names[ctx.Key()], nil
	})
	app := embedded.MustOpen("memory:", users)
	defer app.Close()
	fmt.Println(profile.Call(app.With(context.Background()), "u-1", perdure.Void{}))
	// Output: ann <nil>
}

// An RPC that is Persisted survives a crash, and two calls with the same RequestID are one call.
func ExampleRPC() {
	mails := perdure.NewService("mails")
	send := perdure.NewRPC(mails, "send", func(ctx perdure.EntityCtx, text string) (string, error) {
		fmt.Println("to", ctx.Key()+":", text)
		return "sent", nil
	}, perdure.Persisted())
	app := embedded.MustOpen("memory:", mails)
	defer app.Close()
	c := app.With(context.Background())
	for range 2 {
		fmt.Println(send.Call(c, "ann", "hello", perdure.RequestID("m-1")))
	}
	// Output:
	// to ann: hello
	// sent <nil>
	// sent <nil>
}
