package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// longHistories is a backend whose executions have a history of a few bytes each.
type longHistories struct {
	api.Backend

	reads   int
	refusal error
}

func (l *longHistories) Describe(_ context.Context, t api.Target) (api.Description, error) {
	return api.Description{Start: model.Start{Address: t.Address, Run: t.Run}}, nil
}

func (l *longHistories) History(context.Context, api.HistoryRequest) (api.HistoryPage, error) {
	l.reads++
	return api.HistoryPage{Events: []model.Event{{Seq: 1, Kind: model.EventSignalReceived, Name: "x"}}}, l.refusal
}

// A check reads a bounded number of histories of each workflow, also if they are too large. The
// report counts the histories that are too large, and the histories that were not read.
func TestDeployCheckCountsLargeHistories(t *testing.T) {
	t.Parallel()
	b := &longHistories{}
	c := &deployCheck{each: 1, most: 10, large: 1, seen: map[string]int{}, took: map[string]int{}}
	d := &api.Description{Start: model.Start{Address: model.Address{Tenant: "default", Type: "order", Key: "k"}}}
	for range versionsRead + 3 {
		if err := c.one(t.Context(), b, nil, d); err != nil {
			t.Fatal(err)
		}
	}
	if c.report.TooLarge != versionsRead || c.report.Unread != 3 || b.reads != versionsRead {
		t.Errorf("%d histories were read; report %+v", b.reads, c.report)
	}

	var out bytes.Buffer
	if err := c.tell(&options{output: "table", Streams: Streams{Out: &out}}); err != nil || !strings.Contains(out.String(), "3 more were not read, because the check had read 5") {
		t.Errorf("%v: %s", err, &out)
	}

	// A server that refuses calls, because there are too many, says nothing about the history.
	c.seen, b.refusal = map[string]int{}, fault.New(fault.Exhausted, "too many calls")
	if err := c.one(t.Context(), b, nil, d); !fault.Is(err, fault.Exhausted) || c.report.TooLarge != versionsRead {
		t.Errorf("%v; report %+v", err, c.report)
	}
}
