package api_test

import (
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

func TestWorkflowNames(t *testing.T) {
	t.Parallel()
	for name, fine := range map[string]bool{
		"order": true, "eu.order": true, "perdure": true, "perdured.x": true, "flovyn:q": true, "flovyn:team/talk": true,
		"a/b": false, "/": false, "perdure.": false, "perdure.schedule": false, "task:mail": false, "entity:account": false, "service:rates": false,
	} {
		if err := api.CheckWorkflowName(name); (err == nil) != fine || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
