package access

import (
	"net/http"
	"strconv"
)

// OfHTTP returns the outcome of a request with an HTTP status.
func OfHTTP(status int) Outcome {
	o := Outcome{Code: strconv.Itoa(status), Failed: status >= 400, Fault: status == http.StatusInternalServerError}
	switch status {
	case http.StatusUnauthorized:
		o.Refused = Unauthenticated
	case http.StatusForbidden:
		o.Refused = Denied
	case http.StatusTooManyRequests:
		o.Refused = Exhausted
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		o.Refused = Invalid
	}
	return o
}
