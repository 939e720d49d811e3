package sorter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/sorter"
)

// A meter sends its readings over a network that changes their order and repeats some of them. The
// entity of the meter handles each reading once and in order.
func Example() {
	type meter struct {
		Readings []int
		Inbox    sorter.Sorter
	}
	limits := sorter.Limits{Window: 10 * time.Minute}
	meters := perdure.NewEntity[meter]("meter")
	flush := perdure.DeclareOperation[perdure.Void, perdure.Void]("meter", "flush")

	// handle applies readings that are in order. It also schedules a flush, so that readings behind
	// a gap do not wait longer than the window.
	handle := func(ctx perdure.EntityCtx, m *meter, ready []sorter.Message) error {
		for _, r := range ready {
			var watts int
			if err := json.Unmarshal(r.Body, &watts); err != nil {
				return perdure.Permanent(err)
			}
			m.Readings = append(m.Readings, watts)
		}
		if at, waits := m.Inbox.Due(limits); waits {
			_, err := flush.SendLater(ctx, ctx.Key(), perdure.Void{}, perdure.StartAt(at), perdure.RawKey(ctx.Key()+at.Format(time.RFC3339Nano)))
			return err
		}
		return nil
	}
	read := perdure.NewOperation(meters, "read", func(ctx perdure.EntityCtx, m *meter, in sorter.Message) ([]int, error) {
		ready, err := m.Inbox.Receive(limits, in, time.Now())
		if err != nil {
			return nil, err // the meter tries again
		}
		return m.Readings, handle(ctx, m, ready)
	})
	bound := perdure.BindOperation(meters, flush, func(ctx perdure.EntityCtx, m *meter, _ perdure.Void) (perdure.Void, error) {
		return perdure.Void{}, handle(ctx, m, m.Inbox.Flush(limits, time.Now()))
	})
	app := embedded.MustOpen("memory:", meters, bound)
	defer app.Close()

	var sent []sorter.Message
	numbers := sorter.Numbers{Sender: "m-1"}
	for _, watts := range []string{"10", "20", "30"} {
		m, err := numbers.Next("meter/m-1", json.RawMessage(watts))
		if err != nil {
			panic(err)
		}
		sent = append(sent, m)
	}
	for _, i := range []int{0, 2, 0, 1, 2} { // the order in which they arrive
		if _, err := read.Call(app.With(context.Background()), "m-1", sent[i]); err != nil {
			panic(err)
		}
	}
	state, _, err := meters.Get(app.With(context.Background()), "m-1")
	fmt.Println(state.Readings, err)
	// Output: [10 20 30] <nil>
}
