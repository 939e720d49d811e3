package restapi

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// leastGzip is how many bytes a reply must have to be worth compressing.
const leastGzip = 1 << 10

var gzips = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compressor is a ResponseWriter that compresses replies of leastGzip bytes or more, if the client
// accepts that.
type compressor struct {
	http.ResponseWriter

	accepts bool
	status  int
	began   bool
	to      *gzip.Writer // nil while the reply is not compressed
}

func compress(w http.ResponseWriter, r *http.Request) *compressor {
	accepts := false
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		accepts = accepts || name == "gzip" && strings.TrimSpace(weight) != "q=0"
	}
	return &compressor{ResponseWriter: w, accepts: accepts}
}

// Unwrap returns the writer below, for http.ResponseController.
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader keeps the status until the first bytes show whether the reply is compressed.
func (c *compressor) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
}

// Write writes a part of the reply. The library writes a JSON reply as a whole, so the size of the
// first part decides.
func (c *compressor) Write(b []byte) (int, error) {
	c.begin(len(b))
	if c.to != nil {
		return c.to.Write(b)
	}
	return c.ResponseWriter.Write(b)
}

func (c *compressor) begin(size int) {
	if c.began {
		return
	}
	c.began = true
	h := c.Header()
	h.Add("Vary", "Accept-Encoding")
	if c.accepts && size >= leastGzip && h.Get("Content-Encoding") == "" && !strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		h.Set("Content-Encoding", "gzip")
		h.Del("Content-Length")
		c.to, _ = gzips.Get().(*gzip.Writer)
		c.to.Reset(c.ResponseWriter)
	}
	if c.status != 0 {
		c.ResponseWriter.WriteHeader(c.status)
	}
}

// Flush sends what was written.
func (c *compressor) Flush() {
	c.begin(0)
	if c.to != nil {
		_ = c.to.Flush() // a later write returns the error
	}
	_ = http.NewResponseController(c.ResponseWriter).Flush()
}

// Close ends the reply.
func (c *compressor) Close() {
	if !c.began && c.status != 0 {
		c.begin(0)
	}
	if c.to != nil {
		_ = c.to.Close() // the client is gone if this fails
		gzips.Put(c.to)
		c.to = nil
	}
}
