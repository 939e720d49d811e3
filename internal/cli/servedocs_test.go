package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// loaded matches the URLs that a page loads, or that the code of the page loads.
var loaded = regexp.MustCompile(`(?:href|src|data-document)="([^"]+)"`)

// The pages that show the APIs load everything that they need from the server itself, and need no
// key.
func TestServeDocs(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", writeFile(t, t.TempDir(), "key", serveKey))
	root, err := url.Parse("http://" + s.address)
	if err != nil {
		t.Fatal(err)
	}

	for _, page := range []string{"/api/docs", "/swagger-ui/", "/v1/docs"} {
		here := root.JoinPath(page)
		text, _ := fetchDoc(t, here)
		links := loaded.FindAllStringSubmatch(text, -1)
		if len(links) < 3 {
			t.Fatalf("%s loads %q:\n%s", page, links, text)
		}

		documents := 0
		for _, link := range links {
			if strings.HasPrefix(link[1], "#") {
				continue
			}
			at, err := here.Parse(link[1])
			if err != nil || at.Host != root.Host {
				t.Errorf("%s loads %s, which is not on this server: %v", page, link[1], err)
				continue
			}
			text, media := fetchDoc(t, at)
			if !strings.HasSuffix(media, "json") {
				continue
			}
			documents++
			var doc struct {
				OpenAPI string
				Paths   map[string]any
			}
			if err := json.Unmarshal([]byte(text), &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.") || len(doc.Paths) < 10 {
				t.Errorf("%s: version %q, %d paths, %v", at, doc.OpenAPI, len(doc.Paths), err)
			}
		}
		if documents == 0 {
			t.Errorf("%s loads no document: %q", page, links)
		}
	}
	s.end()
}

// fetchDoc fetches a file of a page, and returns its text and its media type.
func fetchDoc(t *testing.T, at *url.URL) (text, media string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	raw, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK || len(raw) < 100 {
		t.Errorf("%s: status %d, %d bytes, %v", at, reply.StatusCode, len(raw), err)
	}
	media, _, _ = strings.Cut(reply.Header.Get("Content-Type"), ";")
	return string(raw), media
}
