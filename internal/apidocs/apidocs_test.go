package apidocs_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/apidocs"
)

var link = regexp.MustCompile(`(?:href|src)="([^"]+)"`)

// get asks for a path, with or without compression.
func get(h http.Handler, path, encoding string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, reply *http.Response) string {
	t.Helper()
	var from io.Reader = reply.Body
	if reply.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		from = unpacked
	}
	text, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Everything that the page loads comes from this server, under the path of the page. The server
// also sends it uncompressed to clients that do not accept gzip.
func TestPageLoadsItsOwnFiles(t *testing.T) {
	t.Parallel()
	h := apidocs.Page{Title: "T", Base: "/api/docs", Document: "/api/docs/openapi.json"}.Handler()
	for _, path := range []string{"/api/docs", "/api/docs/"} {
		reply := get(h, path, "")
		text := body(t, reply)
		if reply.StatusCode != http.StatusOK || !strings.Contains(text, `data-document="/api/docs/openapi.json"`) {
			t.Fatalf("%s: %d\n%s", path, reply.StatusCode, text)
		}
		if csp := reply.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self';") {
			t.Errorf("the policy is %q", csp)
		}

		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if m[1] == "/api/docs/openapi.json" {
				continue
			}
			plain, packed := body(t, get(h, m[1], "")), body(t, get(h, m[1], "br, gzip;q=0.8"))
			if reply := get(h, m[1], ""); reply.StatusCode != http.StatusOK || len(plain) < 100 || plain != packed {
				t.Errorf("%s: %d, %d bytes, %d compressed", m[1], reply.StatusCode, len(plain), len(packed))
			}
		}
	}
	if text := body(t, get(h, "/api/docs/swagger-ui-bundle.js", "gzip;q=0")); !strings.Contains(text, "SwaggerUIBundle") {
		t.Error("the code of the page is not there")
	}

	for _, path := range []string{"/api/docs/embed.go", "/api/docs/../x", "/api/docs/swagger-ui.js.gz", "/api/docs/nothing"} {
		if reply := get(h, path, ""); reply.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, reply.StatusCode)
		}
	}
}
