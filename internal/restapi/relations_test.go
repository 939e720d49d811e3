package restapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
)

// related has the parts of relations that these tests read.
type related struct {
	Run       string
	Parent    *struct{ Workflow, Key, Run, Step string }
	BeganWith *struct{ Workflow, Key, Run string } `json:"began_with"`
	Runs      []struct {
		Run, Status, Previous, Next string
		Current                     bool
	}
	Children []struct {
		Position                    int64
		Step, Workflow, Key, Status string
	}
	Forks         []struct{ Workflow, Key, Run, Status string }
	ForksComplete bool  `json:"forks_complete"`
	MoreChildren  bool  `json:"more_children"`
	After         int64 `json:"after"`
}

func (w *world) relations(path string) (r related) {
	w.t.Helper()
	a := w.want(http.StatusOK, "", http.MethodGet, "/v1/executions/"+path, "")
	if err := json.Unmarshal([]byte(a.body), &r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// An execution names its parent, its children with their ends, the runs of its key, and, on
// request, its forks.
func TestRelations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	release := perdure.NewSignal[int]("release")
	child := perdure.NewWorkflow("child", func(ctx perdure.WorkflowCtx, wait bool) (int, error) {
		if wait {
			return release.Receive(ctx)
		}
		return 1, nil
	})
	var parent *perdure.Workflow[int, int]
	parent = perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, left int) (int, error) {
		if left > 0 {
			return 0, parent.ContinueAsNew(left - 1)
		}
		if _, err := child.Run(ctx, false, perdure.RawKey("quick")); err != nil {
			return 0, err
		}
		return child.Run(ctx, true, perdure.RawKey("slow"))
	})
	app, err := attach.Open(w.ctx, attach.Config{Backend: w.server.Node().Backend(), Tenant: model.DefaultTenant}, child, parent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	w.want(201, "", http.MethodPost, "/v1/executions", `{"workflow":"parent","key":"p","input":1}`)
	w.eventually(`"code":"child"`, "/v1/executions/parent/p/explanation")
	w.eventually(`"code":"signal"`, "/v1/executions/child/slow/explanation")

	r := w.relations("parent/p/relations")
	if len(r.Runs) != 2 || !r.Runs[0].Current || r.Runs[0].Run != r.Run || r.Runs[0].Previous != r.Runs[1].Run || r.Runs[1].Next != r.Run || r.Runs[1].Status != "continued" {
		t.Errorf("the runs are %+v", r.Runs)
	}
	if c := r.Children; len(c) != 2 || c[0].Key != "quick" || c[0].Status != "completed" || c[1].Key != "slow" || c[1].Status != "" || c[1].Workflow != "child" || r.MoreChildren {
		t.Errorf("the children are %+v", r.Children)
	}
	if rest := w.relations("parent/p/relations?after=0").Children; len(rest) != 2 {
		t.Errorf("the children behind the start are %+v", rest)
	}
	if r := w.relations("child/slow/relations"); r.Parent == nil || r.Parent.Key != "p" || r.Parent.Run == "" || len(r.Runs) != 1 || r.Runs[0].Previous != "" {
		t.Errorf("the child has %+v", r)
	}
	if r.Parent != nil || r.BeganWith != nil || r.ForksComplete || r.Forks != nil {
		t.Errorf("the parent has %+v", r)
	}

	w.want(200, "", http.MethodPost, "/v1/executions/child/slow/fork", `{"key":"copy"}`)
	w.want(201, "", http.MethodPost, "/v1/executions", `{"workflow":"child","key":"other","input":false}`)
	if r := w.relations("child/slow/relations?forks=true"); len(r.Forks) != 1 || r.Forks[0].Key != "copy" || r.Forks[0].Run == "" || !r.ForksComplete {
		t.Errorf("the forks are %+v", r)
	}
	if r := w.relations("child/copy/relations"); r.BeganWith == nil || r.BeganWith.Key != "slow" {
		t.Errorf("the fork has %+v", r)
	}
	w.want(404, "", http.MethodGet, "/v1/executions/child/none/relations", "")
	w.want(422, "", http.MethodGet, "/v1/executions/child/slow/relations?after=-2", "")
}
