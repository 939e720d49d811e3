// Package apidocs serves a page that shows an OpenAPI document with Swagger UI. This process serves
// the page and all files of the page, so the page loads nothing from other servers. The files are
// large, so apps do not link this package. Only the perdure command does.
package apidocs

import (
	"compress/gzip"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/swaggest/swgui/v5/static"
)

// policy lets the page use the files of this server only. It allows inline styles and data: images
// because Swagger UI sets styles of its elements and has its icons in its style sheet.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<link rel="icon" type="image/png" href="{{.Base}}/favicon-32x32.png" sizes="32x32">
<link rel="stylesheet" href="{{.Base}}/swagger-ui.css">
<script src="{{.Base}}/swagger-ui-bundle.js" defer></script>
<script src="{{.Base}}/start.js" defer></script>
</head>
<body data-document="{{.Document}}">
<main id="swagger-ui"><p>Loading <a href="{{.Document}}">the OpenAPI document</a>.</p></main>
</body>
</html>
`))

// start is the script of the page. It shows the document whose path is in the page.
const start = `"use strict";
SwaggerUIBundle({
  url: document.body.dataset.document, dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null, docExpansion: "list", persistAuthorization: false,
});
`

// kinds are the media types of the files of Swagger UI that the handler serves.
var kinds = map[string]string{
	"swagger-ui.css": "text/css; charset=utf-8", "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
	"favicon-16x16.png": "image/png", "favicon-32x32.png": "image/png",
}

// Page has the path of the page that shows the document of an API, and the path of the document
// itself.
type Page struct {
	Title string
	// Base is the path of the page, without a slash at its end.
	Base string
	// Document is the path of the document. Handler does not serve the document.
	Document string
}

// Handler serves the page and its files. It answers requests for any other path below Base with
// 404.
func (p Page) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")

		name := strings.Trim(strings.TrimPrefix(r.URL.Path, p.Base), "/")
		switch name {
		case "":
			h.Set("Content-Type", "text/html; charset=utf-8")
			_ = page.Execute(w, p) // the client is gone if this fails
		case "start.js":
			h.Set("Content-Type", "text/javascript; charset=utf-8")
			_, _ = io.WriteString(w, start) // the client is gone if this fails
		default:
			serveFile(w, r, name)
		}
	})
}

// serveFile sends a file of Swagger UI. Except for images, package static has these files only in
// compressed form.
func serveFile(w http.ResponseWriter, r *http.Request, name string) {
	kind, known := kinds[name]
	if !known {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "max-age=3600")

	if path.Ext(name) == ".png" {
		http.ServeFileFS(w, r, static.FS, name)
		return
	}

	h.Set("Vary", "Accept-Encoding")
	packed, err := static.FS.Open(name + ".gz")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer packed.Close()
	if err := send(w, packed, acceptsGzip(r)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// send sends a compressed file. If asIs is false, it unpacks the file.
func send(w http.ResponseWriter, packed fs.File, asIs bool) error {
	if asIs {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.Copy(w, packed) // the client is gone if this fails
		return nil
	}
	text, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	_, _ = io.Copy(w, text) //nolint:gosec // the program contains the file, so its unpacked size is known
	return nil
}

// acceptsGzip reports whether a client takes compressed replies.
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.ReplaceAll(weight, " ", "") != "q=0"
		}
	}
	return false
}
