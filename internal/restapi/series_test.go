package restapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// seriesOf reads the numbers of the last hour. It returns the sum of each line of numbers by its
// name, and how many nodes have answered.
func (w *world) seriesOf(tenant string) (sums map[string]int64, nodes int, partial bool) {
	w.t.Helper()
	var s struct {
		From    time.Time
		Lines   map[string][]int64
		Nodes   []struct{ Answered bool }
		Partial bool
	}
	asked := time.Now()
	a := w.want(http.StatusOK, "", http.MethodGet, "/v1/series?step=5m", "", "Perdure-Tenant", tenant)
	if err := json.Unmarshal([]byte(a.body), &s); err != nil {
		w.t.Fatal(err)
	}

	sums = map[string]int64{}
	for name, points := range s.Lines {
		if len(points) != 12 {
			w.t.Errorf("%s has %d points", name, len(points))
		}
		for _, n := range points {
			sums[name] += n
		}
	}
	for _, n := range s.Nodes {
		if n.Answered {
			nodes++
		}
	}
	// The hour ends at a moment between the request and now.
	if asked.Sub(s.From) > time.Hour || time.Since(s.From) < 55*time.Minute {
		w.t.Errorf("the first point begins %s before the request and %s ago", asked.Sub(s.From), time.Since(s.From))
	}
	return sums, nodes, s.Partial
}

// Every node returns the numbers of all nodes, but only for one tenant.
func TestSeriesOfAllNodes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	a := newWorldOn(t, url, nil)
	b := newWorldOn(t, url, nil)
	a.want(http.StatusCreated, "", http.MethodPost, "/v1/tenants", `{"name":"acme"}`)

	// No process has the code of these executions. They are counted when they start and when they
	// are terminated.
	const runs = 20
	for i := range runs {
		w := []*world{a, b}[i%2]
		w.want(http.StatusCreated, "", http.MethodPost, "/v1/executions", fmt.Sprintf(`{"workflow":"order","key":"%d"}`, i))
	}
	for i := range 5 {
		a.want(http.StatusNoContent, "", http.MethodPost, fmt.Sprintf("/v1/executions/order/%d/terminate", i), `{"reason":"test"}`)
	}
	seen := "nothing"
	t.Cleanup(func() { t.Log("seen last: ", seen) })
	awaitSeries := func(w *world) {
		t.Helper()
		for {
			sums, nodes, partial := w.seriesOf("default")
			seen = fmt.Sprintf("%v of %d nodes", sums, nodes)
			if sums["started"] == runs && sums["terminated"] == 5 && nodes == 2 {
				if !partial {
					t.Error("nodes that have just begun claim to know the whole hour")
				}
				return
			}
			if sums["started"] > runs {
				t.Fatal("more than were started")
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	for _, w := range []*world{a, b} {
		awaitSeries(w)
		if sums, _, _ := w.seriesOf("acme"); sums["started"] != 0 {
			t.Errorf("another tenant sees %v", sums)
		}
	}

	// A node that has handed its shards over still knows what it has counted.
	left := a.nodeWithShards()
	for left == "" { // the nodes are dividing the shards
		time.Sleep(50 * time.Millisecond)
		left = a.nodeWithShards()
	}
	a.want(http.StatusAccepted, "", http.MethodPost, "/v1/nodes/"+left+"/drain", "")
	for a.nodeWithShards() == left {
		time.Sleep(50 * time.Millisecond)
	}
	awaitSeries(a)
	awaitSeries(b)
}

// nodeWithShards returns a node that owns shards. It returns the same node as long as that node
// owns shards.
func (w *world) nodeWithShards() (id string) {
	w.t.Helper()
	var nodes struct {
		Items []struct {
			Node   string
			Shards int
		}
	}
	a := w.want(http.StatusOK, "", http.MethodGet, "/v1/nodes", "")
	if err := json.Unmarshal([]byte(a.body), &nodes); err != nil {
		w.t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if n.Shards > 0 && (id == "" || n.Node < id) {
			id = n.Node
		}
	}
	return id
}
