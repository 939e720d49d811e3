package cli

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/partitioned"
)

// awayPart is a database that does not answer.
type awayPart struct{ store.Part }

func (awayPart) Members(context.Context) (store.View, error) {
	return store.View{}, store.Errorf(store.Away, "members", "no answer")
}

// Doctor compares the clock of every database with its own. A database that does not answer is a
// problem, and does not hide the others. A store of one database has no such findings.
func TestClocksOfDatabases(t *testing.T) {
	t.Parallel()
	o := memory.Options{Shards: 4, Groups: []model.Group{{Name: "eu", Shards: 1}, {Name: "us", Shards: 1}, {Name: "asia", Shards: 1}}}
	late := o
	late.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	st, err := partitioned.New(memory.New(o), []partitioned.Member{
		{Name: "frankfurt", Groups: []string{"eu"}, Store: memory.New(late)},
		{Name: "boston", Groups: []string{"us"}, Store: awayPart{memory.New(o)}},
		{Name: "tokyo", Groups: []string{"asia"}, Store: memory.New(o)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()

	got := map[string]string{}
	for _, f := range partFindings(t.Context(), st) {
		got[f.Check] = f.State
		if f.State == "warning" && !strings.Contains(f.Detail, "1h0m") && !strings.Contains(f.Detail, "59m59") {
			t.Errorf("%+v, want the difference of the clocks", f)
		}
	}
	want := map[string]string{"clock of database frankfurt": "warning", "clock of database boston": "problem", "clock of database tokyo": "ok"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if one := partFindings(t.Context(), memory.New(o)); len(one) > 0 {
		t.Errorf("findings of a single database: %+v", one)
	}
}
