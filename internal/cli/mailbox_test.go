package cli_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// waitingOf returns the ids and the request ids of waiting calls or signals, from their list in
// JSON.
func waitingOf(t *testing.T, out string) (ids, requests []string) {
	t.Helper()
	var lines []struct {
		ID        string `json:"id"`
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal([]byte(out), &lines); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, l := range lines {
		ids, requests = append(ids, l.ID), append(requests, l.RequestID)
	}
	return ids, requests
}

// An operator shows, skips and drops waiting calls in a file that no program has open.
func TestMailboxOfAFile(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "bank.db")
	app, err := embedded.Open(t.Context(), url, saving) // the app lacks the code of accounts
	if err != nil {
		t.Fatal(err)
	}
	for cents := range 3 {
		if err := deposit.Send(app.With(t.Context()), "m", money{cents}, perdure.RequestID(strings.Repeat("r", cents+1))); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	do := on(t, url)
	list := func() (ids, requests []string) {
		t.Helper()
		return waitingOf(t, do("", 0, "entity", "mailbox", "account/m", "-o", "json"))
	}
	ids, _ := list()
	do(`"Cents":0`, 0, "entity", "mailbox", "show", "account/m", ids[0])
	do("moved call "+ids[0]+" of account/m to the end; its new id is 4-", 0, "entity", "mailbox", "skip", "account/m", ids[0])
	do("dropped call "+ids[1]+" of account/m", 0, "entity", "mailbox", "drop", "account/m", ids[1])
	do("", 3, "entity", "mailbox", "drop", "account/m", ids[1])
	if _, requests := list(); strings.Join(requests, " ") != "rrr r" {
		t.Errorf("requests %q wait", requests)
	}
}
