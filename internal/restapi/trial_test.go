package restapi_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// A trial of a limit counts the open tasks that the limit would apply to, by key. It does not set
// the limit.
func TestTryLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const get, post = http.MethodGet, http.MethodPost
	submit := func(kind, queue, key, customer string) {
		t.Helper()
		_, err := w.server.Node().Backend().Start(w.ctx, api.StartRequest{
			Address: model.Address{Tenant: model.DefaultTenant, Type: model.TaskPrefix + kind, Key: key}, Task: &model.TaskSpec{Kind: kind, Queue: queue},
			Input: model.Payload{Data: []byte(`{"customer":"` + customer + `"}`)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, customer := range []string{"a", "b", "a", "a", "b"} {
		submit("mail", "mails", strconv.Itoa(i), customer)
	}
	submit("fax", "faxes", "f", "a")

	try := func(want, body string) {
		t.Helper()
		w.want(200, want, post, "/v1/limits/new/trial", body)
	}
	try(`"uses":[{"held":0,"waiting":5,"delayed":0,"excess":3}],"others":{"keys":0,"held":0,"waiting":0},"partial":false`, `{"queue":"mails","concurrency":2}`)
	try(`"uses":[{"key":"a","held":0,"waiting":3,"delayed":0,"excess":1},{"key":"b","held":0,"waiting":2,"delayed":0,"excess":0}]`, `{"queue":"mails","key":"input.customer","concurrency":2}`)
	try(`"waiting":6,"delayed":0,"excess":0,"clears":"5m0s"`, `{"queue":"*","rate":"1/1m"}`)
	try(`"uses":[{"key":"mail","held":0,"waiting":5`, `{"queue":"*","per":"activity","concurrency":1}`)
	try(`"uses":[]`, `{"activity":"letter","concurrency":1}`)

	w.want(400, "", post, "/v1/limits/new/trial", `{"queue":"mails"}`)
	w.want(400, "", post, "/v1/limits/new/trial", `{"queue":"mails","rate":"soon"}`)
	w.want(400, "", post, "/v1/limits/new/trial", `{"queue":"mails","concurrency":1,"key":"nonsense("}`)
	w.want(200, `"items":[]`, get, "/v1/limits", "")
}
