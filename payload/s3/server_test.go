package s3_test

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// server is a small object store with one bucket. Like a real store, it refuses a request without
// the right signature, an old request, and a body that does not match its checksum. It computes the
// signature itself, by the published rules of version 4.
type server struct {
	t              *testing.T
	bucket, region string
	access, secret string

	mu      sync.Mutex
	objects map[string]object
	page    int                     // keys of one page of a listing
	fault   func(*http.Request) int // returns an HTTP status to answer with, or 0 for none
}

// with calls f, which changes the server, while the server handles no request.
func (s *server) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

type object struct {
	data []byte
	at   time.Time
}

type refusal struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
}

func (s *server) refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(refusal{Code: code, Message: message})
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		if status := s.fault(r); status != 0 {
			s.refuse(w, status, "AccessDenied", "on purpose")
			return
		}
	}

	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.refuse(w, 400, "IncompleteBody", err.Error())
		return
	}

	if why := s.unsigned(r, body); why != "" {
		s.refuse(w, 403, "SignatureDoesNotMatch", why)
		return
	}

	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if name != s.bucket {
		s.refuse(w, 404, "NoSuchBucket", name)
		return
	}

	switch {
	case key == "" && r.Method == http.MethodHead:
	case key == "" && r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "2":
		s.list(w, r.URL.Query())
	case r.Method == http.MethodPut:
		sum := md5.Sum(body)
		if got := r.Header.Get("Content-Md5"); got != base64.StdEncoding.EncodeToString(sum[:]) {
			s.refuse(w, 400, "BadDigest", "content-md5 is "+got)
			return
		}
		s.objects[key] = object{body, time.Now()}
		w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
	case r.Method == http.MethodGet:
		o, ok := s.objects[key]
		if !ok {
			s.refuse(w, 404, "NoSuchKey", key)
			return
		}
		w.Header().Set("Last-Modified", o.at.UTC().Format(http.TimeFormat))
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(o.data)))
		_, _ = w.Write(o.data)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(204)
	default:
		s.refuse(w, 501, "NotImplemented", r.Method+" "+r.URL.String())
	}
}

func (s *server) list(w http.ResponseWriter, q url.Values) {
	type entry struct{ Key, LastModified, ETag string }
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []entry
	}

	var keys []string
	for k := range s.objects {
		if strings.HasPrefix(k, q.Get("prefix")) && k > q.Get("continuation-token") {
			keys = append(keys, k)
		}
	}

	slices.Sort(keys)
	if len(keys) > s.page {
		keys = keys[:s.page]
		out.IsTruncated, out.NextContinuationToken = true, keys[len(keys)-1]
	}

	for _, k := range keys {
		out.Contents = append(out.Contents, entry{k, s.objects[k].at.UTC().Format(time.RFC3339), `"x"`})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out)
}

// unsigned says why the signature of a request is wrong. It returns an empty text if the signature
// is right.
func (s *server) unsigned(r *http.Request, body []byte) string {
	fields, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if !ok {
		return "no signature of version 4"
	}

	auth := map[string]string{}
	for f := range strings.SplitSeq(fields, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(f), "=")
		auth[k] = v
	}

	date := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", date)
	if err != nil || time.Since(at).Abs() > 15*time.Minute {
		return "the time of the request is " + date
	}
	scope := strings.Join([]string{date[:8], s.region, "s3", "aws4_request"}, "/")
	if auth["Credential"] != s.access+"/"+scope {
		return "credential " + auth["Credential"]
	}

	signed := strings.Split(auth["SignedHeaders"], ";")
	for _, must := range []string{"host", "x-amz-date", "x-amz-content-sha256"} {
		if !slices.Contains(signed, must) {
			return must + " is not signed"
		}
	}

	hash := r.Header.Get("X-Amz-Content-Sha256")
	if sum := sha256.Sum256(body); hash != "UNSIGNED-PAYLOAD" && hash != hex.EncodeToString(sum[:]) {
		return "the body is not what was signed: " + hash
	}

	var headers strings.Builder
	for _, h := range signed {
		v := strings.Join(r.Header.Values(h), ",")
		switch h {
		case "host":
			v = r.Host
		case "content-length":
			v = fmt.Sprint(r.ContentLength)
		}
		fmt.Fprintf(&headers, "%s:%s\n", h, strings.TrimSpace(v))
	}

	canonical := strings.Join([]string{
		r.Method, r.URL.EscapedPath(), strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20"), headers.String(), auth["SignedHeaders"], hash,
	}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", date, scope, hex.EncodeToString(sum[:])}, "\n")
	key := []byte("AWS4" + s.secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	if want := hex.EncodeToString(mac(key, text)); auth["Signature"] != want {
		return "signature " + auth["Signature"] + ", want " + want + " of\n" + canonical
	}

	return ""
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
