package restapi_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure/internal/restapi"
)

// contract finds what the document promises about answers.
type contract struct {
	doc *huma.OpenAPI
	mux *http.ServeMux // finds the path of the document that a request has
}

func newContract(s *restapi.Server) *contract {
	c := &contract{doc: s.OpenAPI(), mux: http.NewServeMux()}
	for path, item := range c.doc.Paths {
		for method := range methodsOf(item) {
			c.mux.HandleFunc(method+" "+path, http.NotFound)
		}
	}
	return c
}

// methodsOf returns the operations of a path by method.
func methodsOf(item *huma.PathItem) map[string]*huma.Operation {
	all := map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
	}
	for method, op := range all {
		if op == nil {
			delete(all, method)
		}
	}
	return all
}

// check returns how an answer differs from what the document promises for its operation and
// status. It judges JSON only. An answer to a request that the document does not have is right.
func (c *contract) check(r *http.Request, a *answer) error {
	_, pattern := c.mux.Handler(r)
	method, path, ok := strings.Cut(pattern, " ")
	if !ok {
		return nil
	}
	op := methodsOf(c.doc.Paths[path])[method]
	promised := cmp.Or(op.Responses[strconv.Itoa(a.status)], op.Responses["default"])
	if promised == nil {
		return errors.New(op.OperationID + " has no status " + strconv.Itoa(a.status) + " in the document")
	}
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil || a.body == "" || !strings.HasSuffix(kind, "json") || a.header.Get("Content-Encoding") != "" {
		return nil //nolint:nilerr // an answer without a type has no body
	}
	content := promised.Content[kind]
	if content == nil || content.Schema == nil {
		return errors.New(op.OperationID + " has no " + kind + " with the status " + strconv.Itoa(a.status) + " in the document")
	}

	var value any
	if err := json.Unmarshal([]byte(a.body), &value); err != nil {
		return err
	}
	var found huma.ValidateResult
	huma.Validate(c.doc.Components.Schemas, content.Schema, huma.NewPathBuffer([]byte(op.OperationID), 0), huma.ModeReadFromServer, value, &found)
	return errors.Join(found.Errors...)
}

// The check of answers finds what the document does not promise.
func TestContract(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, c := range []struct {
		path, body, want string
		status           int
	}{
		{"/v1/execution-count", `{"count": 1}`, "", 200},
		{"/v1/execution-count", `{"count": 1, "more": 2}`, "unexpected property", 200},
		{"/v1/execution-count", `{"count": "one"}`, "expected integer", 200},
		{"/v1/execution-count", `{}`, "expected required property count", 200},
		{"/v1/execution-count", `{"count": 1}`, "no application/json with the status 404", 404},
		{"/v1/no-such-path", `{}`, "", 200},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		err = w.contract.check(r, &answer{c.status, http.Header{"Content-Type": {"application/json"}}, c.body})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %d %s: %v, want %q", c.path, c.status, c.body, err, c.want)
		}
	}
}
