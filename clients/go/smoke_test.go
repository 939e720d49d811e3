package perdurerest_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	perdurerest "github.com/perdure/perdure/clients/go"
)

// The client talks to a real server, whose URL is in PERDURE_URL. scripts/clients.sh starts this
// server.
func TestExecutionsAndBatches(t *testing.T) {
	url := os.Getenv("PERDURE_URL")
	if url == "" {
		t.Skip("PERDURE_URL names no server")
	}
	c, err := perdurerest.NewClientWithResponses(url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, key := t.Context(), fmt.Sprint("go-", time.Now().UnixNano())
	query := fmt.Sprintf("label.lot = %q", key)

	started, err := c.StartExecutionWithResponse(ctx, nil, perdurerest.StartBody{Workflow: "idle", Key: key, Input: 3, Labels: &map[string]string{"lot": key}})
	if err != nil || started.JSON201 == nil || started.JSON201.Existing {
		t.Fatalf("%s, %v", started.Body, err)
	}
	listed, err := c.ListExecutionsWithResponse(ctx, &perdurerest.ListExecutionsParams{Query: &query})
	if err != nil || listed.JSON200 == nil || len(listed.JSON200.Items) != 1 || listed.JSON200.Items[0].Key != key {
		t.Fatalf("%s, %v", listed.Body, err)
	}

	order := perdurerest.BatchOrder{Id: &key, Verb: perdurerest.BatchOrderVerbTerminate, Query: query}
	batch, err := c.StartBatchWithResponse(ctx, nil, order)
	if err != nil || batch.StatusCode() != http.StatusCreated || batch.JSON201.Progress.Matched != 1 {
		t.Fatalf("%s, %v", batch.Body, err)
	}
	for {
		now, err := c.GetBatchWithResponse(ctx, key)
		if err != nil || now.JSON200 == nil {
			t.Fatalf("%s, %v", now.Body, err)
		}
		if now.JSON200.Status != nil && *now.JSON200.Status == "completed" {
			if now.JSON200.Progress.Done != 1 {
				t.Errorf("%s", now.Body)
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}

	missing, err := c.DescribeExecutionWithResponse(ctx, "idle", "none", nil)
	if err != nil || missing.StatusCode() != http.StatusNotFound || missing.ApplicationproblemJSONDefault == nil || missing.ApplicationproblemJSONDefault.Kind != "not_found" {
		t.Errorf("%d %s, %v", missing.StatusCode(), missing.Body, err)
	}
}
