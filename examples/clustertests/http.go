package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
)

// routes returns a handler with all routes of the application.
func (n *node) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /health", answer(func(*http.Request) (any, error) { return map[string]string{"status": "ok"}, nil }))
	for _, a := range n.areas {
		a.routes(n, mux)
	}
	n.debugRoutes(mux)
	return mux
}

// answer turns a function into a handler. The handler replies with the result as compact JSON, or
// with status 500 and the error.
func answer[T any](f func(r *http.Request) (T, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := f(r)
		text, status := []byte(nil), http.StatusOK
		if err == nil {
			text, err = compact(out)
		}
		if err != nil {
			status = http.StatusInternalServerError
			// a string can always be encoded
			text, _ = compact(map[string]string{"error": err.Error()})
		}

		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(text) // the client may be gone
	})
}

// compact encodes a value without blanks and without escapes for HTML.
func compact(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// maxBody is the largest body of a request.
const maxBody = 1 << 20

// body reads the body of a request and ignores its content type.
func body[T any](r *http.Request) (v T, err error) {
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("the body is not what this route takes: %w", err)
	}
	return v, nil
}

// number reads a body that is a bare number.
func number(r *http.Request) (int64, error) {
	n, err := body[*int64](r)
	switch {
	case err != nil:
		return 0, err
	case n == nil:
		return 0, errors.New("the body must be a number")
	default:
		return *n, nil
	}
}

// unit is the answer of routes that have no result: null.
type unit struct{}

// MarshalJSON writes null.
func (unit) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// target names the entity or service of a request, for the log of requests.
type target struct{ typ, id, tag string }

// persisted makes a call that must take effect once. If a node dies during the call, persisted
// repeats the call under the same id.
func persisted[O any](n *node, r *http.Request, to target, call func(c perdure.Client, id perdure.CallOption) (O, error)) (O, error) {
	id := "http/" + uuid.NewString()
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		id = fmt.Sprintf("http/%s/%s/%s/%s", to.typ, to.id, to.tag, key)
	}
	return logged(n, r, to, func() (O, error) { return call(n.app.With(r.Context()), perdure.RequestID(id)) })
}

// start is a workflow together with the key and the input of one start.
type start[I, O any] struct {
	workflow *perdure.Workflow[I, O]
	key      perdure.Key
	input    I
}

// execute runs a workflow and waits for its end. Requests with the same key share one execution: a
// repeated request gets the result of the first one, even if its body differs.
func execute[I, O any](n *node, r *http.Request, s start[I, O]) (O, error) {
	exec := s.workflow.Execution(s.key)
	return logged(n, r, target{"Workflow/" + exec.Ref.Workflow, exec.Ref.Key, "execute"}, func() (O, error) {
		c := n.app.With(r.Context())
		out, err := s.workflow.Run(c, s.input, s.key)
		if errors.Is(err, perdure.ErrConflict) {
			return exec.Result(c)
		}
		return out, err
	})
}

// logged makes a call, repeats it if insist finds that necessary, and records it in the log of
// requests.
func logged[O any](n *node, r *http.Request, to target, call func() (O, error)) (out O, err error) {
	id, err := n.log.begin(r.Context(), to)
	if err != nil {
		return out, err
	}
	out, repeats, err := insist(r.Context(), call)
	n.log.end(r.Context(), id, repeats)
	return out, err
}

// query makes a call that has the same effect if it runs twice: a read, or an operation such as
// clear. It does not record the call in the log of requests.
func query[O any](r *http.Request, call func() (O, error)) (O, error) {
	out, _, err := insist(r.Context(), call)
	return out, err
}

// insist repeats a call while the node that should answer it is away. It stops when another node
// has taken over and answers, or when ctx ends.
func insist[O any](ctx context.Context, call func() (O, error)) (out O, repeats int, err error) {
	for ; ; repeats++ {
		out, err = call()
		if !errors.Is(err, perdure.ErrUnavailable) {
			return out, repeats, err
		}
		select {
		case <-ctx.Done():
			return out, repeats, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
