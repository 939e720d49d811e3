package restapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden document")

// The OpenAPI documents are equal to the recorded files, so that every change of the contract shows
// in these files. The clients in clients/ are generated from them.
func TestDocument(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, document := range map[string]func() ([]byte, error){"openapi.json": w.rest.Document, "openapi-3.0.json": w.rest.Document30} {
		got, err := document()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name)

		if *update {
			if err := os.WriteFile(file, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}

		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s has changed (-update writes it):\n%s", name, diff)
		}
		served := w.send(http.MethodGet, "/v1/"+name, "")
		var compact, same bytes.Buffer
		if err := errors.Join(json.Compact(&compact, got), json.Compact(&same, []byte(served.body))); err != nil || compact.String() != same.String() {
			t.Errorf("%s is served in another form: %v", name, err)
		}
	}
}

var operationID = regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)

// The document is consistent: all references exist, parameters of paths are declared, ids are
// unique, and every operation says what it does and how it fails.
func TestDocumentIsConsistent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	doc := w.document()
	if doc["openapi"] != "3.1.0" {
		t.Errorf("openapi %v", doc["openapi"])
	}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	walk(doc, func(name string, value any) {
		if ref, ok := value.(string); ok && name == "$ref" {
			if to, found := strings.CutPrefix(ref, "#/components/schemas/"); !found || schemas[to] == nil {
				t.Errorf("%s leads nowhere", ref)
			}
		}
	})

	seen := map[string]bool{}
	for path, methods := range doc["paths"].(map[string]any) {
		for method, value := range methods.(map[string]any) {
			op := value.(map[string]any)
			id, _ := op["operationId"].(string)
			if seen[id] || !operationID.MatchString(id) {
				t.Errorf("%s %s has the id %q", method, path, id)
			}
			seen[id] = true
			if summary, _ := op["summary"].(string); summary == "" || strings.HasSuffix(summary, ".") {
				t.Errorf("%s has the summary %q", id, summary)
			}
			declared := []string{}

			parameters, _ := op["parameters"].([]any)
			for _, p := range parameters {
				if p := p.(map[string]any); p["in"] == "path" {
					declared = append(declared, "{"+p["name"].(string)+"}")
				}
			}

			used := parameter.FindAllString(path, -1)
			slices.Sort(declared)
			slices.Sort(used)
			if !slices.Equal(declared, used) {
				t.Errorf("%s uses %v and declares %v", id, used, declared)
			}
			responses := op["responses"].(map[string]any)
			if responses["default"] == nil || len(responses) < 2 {
				t.Errorf("%s does not say how it succeeds and fails", id)
			}
		}
	}
	if len(seen) < 80 {
		t.Errorf("%d operations", len(seen))
	}
}

// walk calls do for every value with a name.
func walk(value any, do func(name string, value any)) {
	switch v := value.(type) {
	case map[string]any:
		for name, part := range v {
			do(name, part)
			walk(part, do)
		}
	case []any:
		for _, part := range v {
			walk(part, do)
		}
	}
}

// The page that shows the document loads nothing from other servers.
func TestDocsPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.token = ""
	for path, media := range map[string]string{"/v1/docs": "text/html", "/v1/docs/docs.js": "text/javascript", "/v1/docs/docs.css": "text/css"} {
		a := w.send(http.MethodGet, path, "")
		if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), media) || strings.Contains(a.body, "//cdn") || strings.Contains(a.body, "https://") {
			t.Errorf("%s: %d %s", path, a.status, a.header.Get("Content-Type"))
		}
		if csp := a.header.Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self'") || !strings.Contains(csp, "default-src 'none'") {
			t.Errorf("%s: %s", path, csp)
		}
	}
}

// vague are operations whose document does not say what a body needs. A fork needs a key, and a
// reset needs a step or a position. Both are optional in the body that these operations share with
// retry. A setting has the form of its kind.
var vague = map[string]bool{"fork-execution": true, "reset-execution": true, "set-setting": true}

// If a client builds requests from the examples of the document, the server accepts their form. The
// server may answer that the things that the examples name do not exist.
func TestExamplesAreUnderstood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.shop() // the code that the examples name
	doc := w.document()

	tried := 0
	for path, methods := range doc["paths"].(map[string]any) {
		for method, value := range methods.(map[string]any) {
			op := value.(map[string]any)
			examples := map[string]string{}
			parameters, _ := op["parameters"].([]any)
			for _, p := range parameters {
				p := p.(map[string]any)
				schema, _ := p["schema"].(map[string]any)
				if all, _ := schema["examples"].([]any); len(all) > 0 {
					examples[p["name"].(string)] = fmt.Sprint(all[0])
				}
			}

			body := exampleBody(doc, op)
			if strings.HasPrefix(op["operationId"].(string), "watch-") { // TestChanges, TestEventStream, TestTaskStreamAsEvents
				continue
			}
			request, _ := op["requestBody"].(map[string]any)
			if !complete(path, examples) || request["required"] == true && body == "" {
				if len(examples) > 0 || body != "" {
					t.Errorf("%s has examples that make no request: its path has %v, its body %q", op["operationId"], examples, body)
				}
				continue
			}

			tried++
			where := fill(path, func(name string) string { return examples[name] }) + queryOf(op, examples)
			status, text := w.tryExample(strings.ToUpper(method), where, body)
			if status == http.StatusBadRequest && !vague[op["operationId"].(string)] || status == http.StatusUnprocessableEntity || status >= 500 {
				t.Errorf("%s %s %s: %d %s", method, path, body, status, text)
			}
		}
	}

	if tried < 60 {
		t.Errorf("%d examples", tried)
	}
}

// tryExample sends a request and returns the status. If a call still waits after some seconds, for
// example for code that is paused, the server has accepted its form.
func (w *world) tryExample(method, path, body string) (status int, text string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}

	got, err := w.client.Do(r)
	if err != nil {
		if ctx.Err() != nil && w.ctx.Err() == nil {
			return http.StatusAccepted, ""
		}
		w.t.Fatal(err)
	}
	defer got.Body.Close()
	all, err := io.ReadAll(got.Body)
	if err != nil {
		return got.StatusCode, string(all) // the part that was read is enough for the error
	}
	if err := w.contract.check(r, &answer{got.StatusCode, got.Header, string(all)}); err != nil {
		w.t.Errorf("%s %s: the answer %d differs from the document: %v\n%.600s", method, path, got.StatusCode, err, all)
	}
	return got.StatusCode, string(all)
}

// queryOf returns the parameters of a query that have examples.
func queryOf(op map[string]any, examples map[string]string) string {
	q := url.Values{}
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		p := p.(map[string]any)
		if name := p["name"].(string); p["in"] == "query" && examples[name] != "" {
			q.Set(name, examples[name])
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

func complete(path string, examples map[string]string) bool {
	for _, p := range parameter.FindAllString(path, -1) {
		if examples[strings.Trim(p, "{}")] == "" {
			return false
		}
	}
	return true
}

// exampleBody makes a body from the examples of its required properties. It returns an empty text
// if a required property has no example.
func exampleBody(doc, op map[string]any) string {
	request, _ := op["requestBody"].(map[string]any)
	content, _ := request["content"].(map[string]any)
	media, _ := content["application/json"].(map[string]any)
	schema, _ := media["schema"].(map[string]any)
	if schema == nil {
		return ""
	}
	body, ok := exampleOf(doc, schema)
	if !ok {
		return ""
	}
	text, _ := json.Marshal(body)
	return string(text)
}

// exampleOf makes a value from the examples of a schema. It reports false if an example is missing.
func exampleOf(doc, schema map[string]any) (any, bool) {
	if ref, ok := schema["$ref"].(string); ok {
		schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
		schema, _ = schemas[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
	}
	examples, _ := schema["examples"].([]any)
	properties, object := schema["properties"].(map[string]any)
	items, list := schema["items"].(map[string]any)
	switch {
	case len(examples) > 0:
		return examples[0], true
	case list:
		one, ok := exampleOf(doc, items)
		return []any{one}, ok
	case !object:
		return 1, schema["type"] == nil // any JSON
	}

	required, _ := schema["required"].([]any)
	body := map[string]any{}
	for name, p := range properties {
		must := slices.Contains(required, any(name))
		part := p.(map[string]any)
		if part["examples"] == nil && !must {
			continue
		}
		value, ok := exampleOf(doc, part)
		if !ok {
			return nil, false
		}
		body[name] = value
	}
	return body, true
}
