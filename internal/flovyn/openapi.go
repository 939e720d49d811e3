package flovyn

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Paths of the description of the HTTP contract, and of the page that shows it.
const (
	DocsPath     = "/api/docs"
	DocumentPath = DocsPath + "/openapi.json"
)

// pathParameter finds the parameters of a path.
var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// serveOpenAPI sends the description of the HTTP contract, which is made from the routes.
func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]map[string]any{}
	add := func(method, path string) {
		var parameters []any
		for _, m := range pathParameter.FindAllStringSubmatch(path, -1) {
			parameters = append(parameters, map[string]any{"name": m[1], "in": "path", "required": true, "schema": map[string]string{"type": "string"}})
		}
		name := strings.Trim(pathParameter.ReplaceAllString(path, "$1"), "/")

		tag, _, _ := strings.Cut(strings.Trim(strings.TrimPrefix(path, "/api/orgs/{slug}"), "/"), "/")
		if path == "/_/health" || strings.HasPrefix(tag, "api") || tag == "" {
			tag = "organizations and health"
		}
		op := map[string]any{
			"tags":        []string{tag},
			"operationId": strings.ToLower(method) + "_" + strings.NewReplacer("/", "_", "-", "_").Replace(name),
			"responses": map[string]any{
				"2XX":     map[string]string{"description": "done"},
				"default": map[string]string{"description": `an error: {"error": "…"}`},
			},
		}

		if len(parameters) > 0 {
			op["parameters"] = parameters
		}
		if method == http.MethodPost {
			op["requestBody"] = map[string]any{"content": map[string]any{"application/json": map[string]any{"schema": map[string]string{"type": "object"}}}}
		}
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path][strings.ToLower(method)] = op
	}

	add(http.MethodGet, "/_/health")
	add(http.MethodPost, "/api/orgs")
	for pattern := range routes {
		method, path, _ := strings.Cut(pattern, " ")
		add(method, "/api/orgs/{slug}"+path)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client is gone if this fails
		"openapi": "3.1.0", "info": map[string]string{"title": "Flovyn contract of Perdure", "version": "1"}, "paths": paths,
		"security":   []any{map[string]any{"key": []string{}}},
		"components": map[string]any{"securitySchemes": map[string]any{"key": map[string]string{"type": "http", "scheme": "bearer"}}},
	})
}

// serveDocs sends a page that lists the requests. It loads nothing from other servers.
func serveDocs(w http.ResponseWriter, _ *http.Request) {
	var page strings.Builder
	page.WriteString(`<!doctype html><html lang="en"><meta charset="utf-8"><title>Flovyn contract</title>` +
		`<h1>Flovyn contract</h1><p>The contract as a document: <a href="` + DocumentPath + `">openapi.json</a>.</p><ul>`)
	for _, pattern := range slices.Sorted(maps.Keys(routes)) {
		method, path, _ := strings.Cut(pattern, " ")
		page.WriteString("<li><code>" + method + " /api/orgs/{slug}" + path + "</code></li>")
	}
	page.WriteString("</ul></html>\n")

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'")
	_, _ = w.Write([]byte(page.String())) // the client is gone if this fails
}
