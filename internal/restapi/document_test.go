package restapi_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden document")

// The OpenAPI document is the recorded one: a change of the contract is a change of this file.
func TestDocument(t *testing.T) {
	t.Parallel()
	got, err := newWorld(t, nil).rest.Document()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "openapi.json")

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
		t.Errorf("the document has changed (-update writes it):\n%s", diff)
	}
}

var operationID = regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)

// The document is consistent: references lead somewhere, parameters of paths are declared, ids are
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

// The examples of the document are requests that the server understands: it may not find what they
// name, but nothing about their form is wrong.
func TestExamplesAreUnderstood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	doc := w.document()

	tried := 0
	for path, methods := range doc["paths"].(map[string]any) {
		for method, value := range methods.(map[string]any) {
			op := value.(map[string]any)
			examples := map[string]string{}
			parameters, _ := op["parameters"].([]any)
			for _, p := range parameters {
				p := p.(map[string]any)
				if text, ok := p["example"].(string); ok {
					examples[p["name"].(string)] = text
				}
			}

			body := exampleBody(doc, op)
			if op["operationId"] == "watch-changes" || !complete(path, examples) || method != "get" && body == "" {
				continue
			}
			tried++
			a := w.send(strings.ToUpper(method), fill(path, func(name string) string { return examples[name] }), body)
			if a.status == http.StatusUnprocessableEntity || a.status >= 500 {
				t.Errorf("%s %s %s: %d %s", method, path, body, a.status, a.body)
			}
		}
	}

	if tried < 25 {
		t.Errorf("%d examples", tried)
	}
}

func complete(path string, examples map[string]string) bool {
	for _, p := range parameter.FindAllString(path, -1) {
		if examples[strings.Trim(p, "{}")] == "" {
			return false
		}
	}
	return true
}

// exampleBody makes a body of the examples of the properties that it must have; empty when one has
// no example.
func exampleBody(doc, op map[string]any) string {
	request, _ := op["requestBody"].(map[string]any)
	content, _ := request["content"].(map[string]any)
	media, _ := content["application/json"].(map[string]any)
	schema, _ := media["schema"].(map[string]any)
	if ref, ok := schema["$ref"].(string); ok {
		schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
		schema, _ = schemas[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
	}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	if len(properties) == 0 {
		return ""
	}

	body := map[string]any{}
	for name, p := range properties {
		examples, _ := p.(map[string]any)["examples"].([]any)
		switch {
		case len(examples) > 0:
			body[name] = examples[0]
		case slices.Contains(required, any(name)):
			return ""
		}
	}
	text, _ := json.Marshal(body)
	return string(text)
}
