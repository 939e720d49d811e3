package restapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// problemType is the media type of errors.
const problemType = "application/problem+json"

// kindStatus is the one table of error kinds and HTTP statuses of the REST API.
var kindStatus = [...]int{
	fault.Unclassified:    http.StatusInternalServerError,
	fault.NotFound:        http.StatusNotFound,
	fault.AlreadyExists:   http.StatusConflict,
	fault.Invalid:         http.StatusBadRequest,
	fault.Conflict:        http.StatusConflict,
	fault.Denied:          http.StatusForbidden,
	fault.Unauthenticated: http.StatusUnauthorized,
	fault.Exhausted:       http.StatusTooManyRequests,
	fault.Unavailable:     http.StatusServiceUnavailable,
	fault.Canceled:        http.StatusServiceUnavailable,
	fault.Timeout:         http.StatusGatewayTimeout,
	fault.Blocked:         http.StatusConflict,
	fault.Corrupt:         http.StatusInternalServerError,
	fault.Internal:        http.StatusInternalServerError,
	fault.NotOwned:        http.StatusConflict,
	fault.WrongType:       http.StatusBadRequest,
}

// failureStatus is the status of a valid request that the code of the user answered with an error.
const failureStatus = http.StatusFailedDependency

// Problem is an error as in RFC 9457.
type Problem struct {
	Type   string `json:"type" doc:"The kind of problem as a URN, such as urn:perdure:problem:not_found"`
	Title  string `json:"title" doc:"The status in words"`
	Status int    `json:"status" doc:"The HTTP status"`
	Detail string `json:"detail" doc:"What is wrong, for people"`
	Kind   string `json:"kind" doc:"The kind of error, by which programs decide what to do: not_found, already_exists, invalid, conflict, denied, unauthenticated, exhausted, unavailable, canceled, timeout, blocked, corrupt, internal, not_owned, wrong_type, or failure for an error of the user's code"`
	Hint   string `json:"hint,omitempty" doc:"What a person can do next"`
	// Failure is the error of the user's code.
	Failure *failure `json:"failure,omitempty"`
	// Errors are the places in the request that are wrong.
	Errors []place `json:"errors,omitempty"`
}

// place is a part of a request that is wrong. It does not contain the value, which may be a secret.
type place struct {
	Message  string `json:"message"`
	Location string `json:"location,omitempty" doc:"The place in the request, such as body.input or query.limit"`
}

// failureKind is the kind of an error of the user's code.
const failureKind = "failure"

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type of problems.
func (*Problem) ContentType(string) string { return problemType }

// problemOf returns an error as a problem; nil for nil.
func problemOf(err error) *Problem {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	kind := fault.KindOf(err)
	p := newProblem(kindStatus[kind], kind.String(), err.Error())
	if e, ok := err.(*fault.Error); ok && e.Hint != "" { //nolint:errorlint // only the outermost error ends with its hint
		bare := *e
		bare.Hint = ""
		p.Detail, p.Hint = bare.Error(), e.Hint
	}

	if f, ok := errors.AsType[*model.Failure](err); ok && kind == fault.Internal {
		p = newProblem(failureStatus, failureKind, err.Error())
		p.Failure = failureOf(f)
	}
	return p
}

func newProblem(status int, kind, detail string) *Problem {
	return &Problem{Type: "urn:perdure:problem:" + kind, Title: http.StatusText(status), Status: status, Detail: detail, Kind: kind}
}

// statusKinds are the kinds of problems that the library finds by itself.
var statusKinds = map[int]fault.Kind{
	http.StatusRequestEntityTooLarge: fault.Exhausted, http.StatusRequestTimeout: fault.Timeout, http.StatusNotAcceptable: fault.Invalid,
	http.StatusUnsupportedMediaType: fault.Invalid, http.StatusUnprocessableEntity: fault.Invalid, http.StatusBadRequest: fault.Invalid,
}

// useProblems makes the library answer with problems, and describe lists as non-null in the
// document. These settings of the library apply to the whole process.
var useProblems = sync.OnceFunc(func() {
	huma.DefaultArrayNullable = false
	huma.NewError = func(status int, text string, errs ...error) huma.StatusError {
		kind, ok := statusKinds[status]
		if !ok {
			kind = fault.Internal
		}
		p := newProblem(status, kind.String(), text)
		for _, err := range errs {
			if d, ok := err.(huma.ErrorDetailer); ok {
				p.Errors = append(p.Errors, place{d.ErrorDetail().Message, d.ErrorDetail().Location})
			} else if err != nil {
				p.Errors = append(p.Errors, place{Message: err.Error()})
			}
		}
		return p
	}
})

// writeProblem answers a request with an error.
func writeProblem(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", problemType)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="perdure"`)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone if this fails
}
