package restapi_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// fuzzRounds is how many rounds of malformed requests a test sends. A round is one request of every
// operation.
var fuzzRounds = flag.Int("rounds", 12, "rounds of malformed requests to every operation")

// mostKept is how much memory the server may keep after all requests of a run.
const mostKept = 64 << 20

// FuzzRequests sends requests to the operations of the document, with values that the document does
// not allow. The values have other types, are too long, have control characters, occur twice, are
// missing, or are texts that the fuzzer chooses. The server answers each of these requests with a
// problem, and no problem says that the server itself has failed.
func FuzzRequests(f *testing.F) {
	w := newWorld(f, nil)
	doc := w.document()
	ops := operationsOf(doc)
	before := kept()
	for i := range *fuzzRounds {
		f.Add(uint64(i), texts[i%len(texts)])
	}

	f.Fuzz(func(t *testing.T, seed uint64, text string) {
		g := &generator{rand.New(rand.NewPCG(seed, 1)), doc, text}
		for _, op := range ops {
			w.try(t, g, op)
		}
	})
	f.Cleanup(func() {
		if after := kept(); after > before+mostKept {
			f.Errorf("the server keeps %d MiB, and %d MiB before the requests", after>>20, before>>20)
		}
	})
}

// kept returns how much memory is in use.
func kept() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// described is an operation of the document.
type described struct {
	method, path string
	spec         map[string]any
}

func operationsOf(doc map[string]any) (all []described) {
	paths := doc["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		methods := paths[path].(map[string]any)
		for _, method := range slices.Sorted(maps.Keys(methods)) {
			all = append(all, described{strings.ToUpper(method), path, methods[method].(map[string]any)})
		}
	}
	return all
}

// serve answers a request. As in a server, a reply that is aborted because its client has left
// affects no other request.
func (w *world) serve(reply http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil && (p != any(http.ErrAbortHandler) || r.Context().Err() == nil) {
			panic(p)
		}
	}()
	w.rest.ServeHTTP(reply, r)
}

// try sends one request of an operation. A stream and a call that waits end soon, because the
// client leaves.
func (w *world) try(t *testing.T, g *generator, op described) {
	t.Helper()
	target, header := g.target(op)
	body, media := g.body(op)
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer leave()
	r, err := http.NewRequestWithContext(ctx, op.method, target, strings.NewReader(body))
	if err != nil {
		return // a URL that no client can send
	}
	r.Header = header
	r.Header.Set("Authorization", "Bearer "+adminKey)
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	reply := httptest.NewRecorder()
	w.serve(reply, r)

	what := fmt.Sprintf("%s %.300q with %.300q", op.method, target, body)
	switch {
	case reply.Code == http.StatusServiceUnavailable && strings.Contains(reply.Body.String(), "waits for a worker that offers"):
		// The request is a query, and no process has the code to answer it.
	case reply.Code == http.StatusServiceUnavailable, reply.Code == http.StatusGatewayTimeout:
		if ctx.Err() == nil {
			t.Errorf("%s: %d %.300s, and the client has not left", what, reply.Code, reply.Body)
		}
	case reply.Code >= 500:
		t.Errorf("%s: %d %.300s", what, reply.Code, reply.Body)
	case reply.Code >= 400:
		if got := reply.Header().Get("Content-Type"); got != "application/problem+json" || !json.Valid(reply.Body.Bytes()) {
			t.Errorf("%s: %d %s is not a problem: %.300s", what, reply.Code, got, reply.Body)
		}
	}
}

// texts are values that break programs.
var texts = []string{
	"", "x", "order", "42", "-1", "1e999", "null", "true", "\x00", "\x1f\u2028", strings.Repeat("ä", 300), "../..", "%2e%2e%2f", "'; drop table runs; --", `{"a":1}`,
	"run_01234567890123456789012345", "\xff\xfe", strings.Repeat("9", 400), "2026-02-30T25:61:61Z", "-1s", "1000000h", "\u202e", "default", "*", strings.Repeat("[", 200),
}

// generator makes requests.
type generator struct {
	*rand.Rand

	doc  map[string]any
	text string
}

// value returns a text that breaks programs, or the text of the fuzzer.
func (g *generator) value() string {
	if g.IntN(4) == 0 {
		return g.text
	}
	return texts[g.IntN(len(texts))]
}

// target is the URL and the headers of a request.
func (g *generator) target(op described) (string, http.Header) {
	path, query, header := op.path, url.Values{}, http.Header{}
	parameters, _ := op.spec["parameters"].([]any)
	for _, p := range parameters {
		p := p.(map[string]any)
		name := p["name"].(string)
		switch p["in"] {
		case "path":
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(g.value()))
		case "query":
			for range g.IntN(3) {
				query.Add(name, g.value())
			}
		case "header":
			if g.IntN(2) == 0 {
				header.Set(name, strings.Map(printable, g.value()))
			}
		}
	}
	if g.IntN(10) == 0 {
		query.Set(g.value(), g.value())
	}
	return "http://server" + path + "?" + query.Encode(), header
}

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return -1
	}
	return r
}

// body is the body of a request and its type.
func (g *generator) body(op described) (text, media string) {
	spec, ok := op.spec["requestBody"].(map[string]any)
	if !ok {
		return "", ""
	}
	for of, content := range spec["content"].(map[string]any) {
		media = of
		schema, _ := content.(map[string]any)["schema"].(map[string]any)
		encoded, err := json.Marshal(g.sample(schema, 5))
		if err != nil {
			return g.value(), media
		}
		text = string(encoded)
	}
	switch g.IntN(10) {
	case 0:
		return g.value(), media
	case 1:
		return text[:g.IntN(len(text)+1)], media
	case 2:
		return text, g.value()
	case 3:
		return strings.Replace(text, "{", `{"a":1,"a":2,`, 1), media
	}
	return text, media
}

// sample is a value for a schema, right or wrong.
func (g *generator) sample(schema map[string]any, depth int) any {
	if ref, ok := schema["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/components/schemas/")
		schema, _ = g.doc["components"].(map[string]any)["schemas"].(map[string]any)[name].(map[string]any)
	}
	if depth == 0 || g.IntN(12) == 0 { // a value of any type
		return []any{nil, g.value(), g.Int64(), -g.Float64() * 1e300, true, []any{g.value()}, map[string]any{g.value(): g.value()}}[g.IntN(7)]
	}

	kind := schema["type"]
	if several, ok := kind.([]any); ok && len(several) > 0 {
		kind = several[g.IntN(len(several))]
	}
	switch kind {
	case "object":
		return g.object(schema, depth)
	case "array":
		items, _ := schema["items"].(map[string]any)
		list := []any{}
		for range g.IntN(4) {
			list = append(list, g.sample(items, depth-1))
		}
		return list
	case "string":
		if allowed, ok := schema["enum"].([]any); ok && g.IntN(3) > 0 {
			return allowed[g.IntN(len(allowed))]
		}
		return g.value()
	case "integer":
		return []any{0, 1, -1, int64(1) << 62, g.IntN(1000)}[g.IntN(5)]
	case "number":
		return g.NormFloat64() * 1e6
	case "boolean":
		return g.IntN(2) == 0
	}
	return map[string]any{"any": g.value()}
}

// object is an object with most of its properties, and sometimes one more.
func (g *generator) object(schema map[string]any, depth int) map[string]any {
	made := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if of, ok := properties[name].(map[string]any); ok && g.IntN(4) > 0 {
			made[name] = g.sample(of, depth-1)
		}
	}
	if g.IntN(8) == 0 {
		made[g.value()] = g.value()
	}
	return made
}
