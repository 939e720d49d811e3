package core

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

// A run finds its open tasks by their ids and keeps them in the order in which they were scheduled,
// whether there are few or many. The same holds for a copy of the run.
func TestOpenTasksAreFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := &Execution{}
		var want []string
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			id := strconv.Itoa(rapid.IntRange(0, 3*fewTasks).Draw(t, "id"))
			switch i := slices.Index(want, id); {
			case i < 0:
				x.openTask(&Task{ID: id, Spec: &model.TaskSpec{}, Scheduled: 1}, "", 0)
				want = append(want, id)
			case rapid.Bool().Draw(t, "drop"):
				x.dropTask(x.Task(id))
				want = slices.Delete(want, i, i+1)
			}
		}

		c := x.Clone()
		for _, e := range []*Execution{x, c} {
			var got []string
			for _, task := range e.Tasks() {
				got = append(got, task.ID)
				if e.Task(task.ID) != task {
					t.Fatalf("task %s is not found", task.ID)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("tasks %q, want %q", got, want)
			}
			for id := range 3*fewTasks + 1 {
				if found := e.Task(strconv.Itoa(id)); (found != nil) != slices.Contains(want, strconv.Itoa(id)) {
					t.Fatalf("task %d: found %v", id, found)
				}
			}
		}

		for i, task := range c.Tasks() {
			if task.Attempt = 7; x.Tasks()[i].Attempt == 7 {
				t.Fatal("a copy shares a task")
			}
		}
	})
}
