package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// A node that gives up its runs waits for running tasks: for the data that they write, and then for
// their reports. After the last report the node waits no longer. The workers of the tasks may
// belong to this node or to another node.
func TestRunsMoveWhenTheirTasksHaveEnded(t *testing.T) {
	t.Parallel()
	for _, lent := range []bool{false, true} {
		for _, logs := range []bool{false, true} {
			t.Run(fmt.Sprint("lent ", lent, ", logs ", logs), func(t *testing.T) {
				t.Parallel()
				withPair(t, func(t *testing.T, p *pair) { moveWhileTasksRun(t, p, lent, logs) })
			})
		}
	}
}

func moveWhileTasksRun(t *testing.T, p *pair, lent, logs bool) {
	at := p.owner
	if lent {
		at = p.other
	}
	var h *hand
	begun := make(chan struct{}, 100)

	h = newHand(at, 100, func(c model.Claim) *model.TaskReport {
		begun <- struct{}{}
		time.Sleep(3 * time.Second) // until the node has seen the next owner
		if logs {
			if err := h.session.Write(t.Context(), &model.TaskWrite{Ref: c.Ref, First: 1, Items: []model.TaskItem{{Kind: model.ItemLog, Text: "done"}}}); err != nil {
				t.Errorf("%s: %v", c.Ref, err)
			}
		}
		return successOf(c)
	})

	settle()
	const tasks = 40
	sendTasks(t, p.owner, tasks, "", model.TaskSpec{})
	for range tasks {
		<-begun
	}
	next, stop := p.world.owner() // half of the runs go to the next owner
	defer stop()
	began := time.Now()
	awaitCompleted(t, next, tasks, "")
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the last one took %s", took)
	}
}
