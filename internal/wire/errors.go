package wire

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// TimeoutHeader has the nanoseconds until the deadline of a client's caller. The deadline of the
// call itself is a little later, so that the server still has time to answer, and to say what the
// call was waiting for.
const TimeoutHeader = "perdure-timeout"

// EraHeader is a header that a server sends with an answer if the client should create its next
// request ids in another era. An era is a part of a request id. From the era, the server can tell
// whether it must look the id up in the store.
const EraHeader = "perdure-era"

// kindCodes is the one table of error kinds and status codes. The code is for clients that do not
// read details; ErrorDetail has the kind itself.
var kindCodes = [...]codes.Code{
	fault.Unclassified:    codes.Unknown,
	fault.NotFound:        codes.NotFound,
	fault.AlreadyExists:   codes.AlreadyExists,
	fault.Invalid:         codes.InvalidArgument,
	fault.Conflict:        codes.FailedPrecondition,
	fault.Denied:          codes.PermissionDenied,
	fault.Unauthenticated: codes.Unauthenticated,
	fault.Exhausted:       codes.ResourceExhausted,
	fault.Unavailable:     codes.Unavailable,
	fault.Canceled:        codes.Canceled,
	fault.Timeout:         codes.DeadlineExceeded,
	fault.Blocked:         codes.FailedPrecondition,
	fault.Corrupt:         codes.DataLoss,
	fault.Internal:        codes.Internal,
	fault.NotOwned:        codes.Aborted,
	fault.WrongType:       codes.InvalidArgument,
}

// codeKinds maps status codes to kinds, for statuses without a detail. gRPC itself and proxies send
// such statuses.
var codeKinds = map[codes.Code]fault.Kind{
	codes.NotFound: fault.NotFound, codes.AlreadyExists: fault.AlreadyExists, codes.InvalidArgument: fault.Invalid,
	codes.FailedPrecondition: fault.Conflict, codes.PermissionDenied: fault.Denied, codes.Unauthenticated: fault.Unauthenticated,
	codes.ResourceExhausted: fault.Exhausted, codes.Unavailable: fault.Unavailable, codes.Canceled: fault.Canceled,
	codes.DeadlineExceeded: fault.Timeout, codes.DataLoss: fault.Corrupt, codes.Aborted: fault.NotOwned, codes.Unimplemented: fault.Invalid,
	codes.OutOfRange: fault.Invalid, codes.Unknown: fault.Internal, codes.Internal: fault.Internal,
}

// Status returns an error as a gRPC status with an ErrorDetail. It returns nil for nil.
func Status(err error) error {
	if err == nil {
		return nil
	}
	d := ErrorDetail(err)
	code := kindCodes[fault.KindOf(err)]
	if d.Failure != nil {
		code = codes.Aborted // the request was valid, but the code of the user failed
	}

	st := status.New(code, text(err.Error()))
	if with, derr := st.WithDetails(d); derr == nil {
		st = with
	}
	return st.Err()
}

// ReadStatus is the inverse of Status. The error has the same kind, text and hint, or is the same
// failure of user code. A status that Status has not created becomes an error of the kind that fits
// its code.
func ReadStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}

	for _, d := range st.Details() {
		if detail, ok := d.(*pb.ErrorDetail); ok {
			return ReadError(detail)
		}
	}

	kind, ok := codeKinds[st.Code()]
	if !ok {
		kind = fault.Internal
	}
	return fault.New(kind, "%s", st.Message())
}

// ErrorDetail builds the message for an error. It returns nil for nil.
func ErrorDetail(err error) *pb.ErrorDetail {
	if err == nil {
		return nil
	}
	d := &pb.ErrorDetail{Kind: fault.KindOf(err).String(), Text: err.Error()}

	var e *fault.Error
	if errors.As(err, &e) && e.Hint != "" {
		bare := *e
		bare.Hint = ""
		d.Hint = e.Hint
		if e == err { //nolint:errorlint // only the outermost error ends with its hint
			d.Text = bare.Error()
		} else {
			d.Hint = ""
		}
	}

	if f, ok := errors.AsType[*model.Failure](err); ok {
		d.Failure = Failure(f)
	}
	d.Text, d.Hint = text(d.Text), text(d.Hint)
	return d
}

// ReadError returns the error of a message. It returns nil for nil.
func ReadError(d *pb.ErrorDetail) error {
	if d == nil {
		return nil
	}
	if f := d.GetFailure(); f != nil {
		failure := ReadFailure(f)
		if d.GetText() == failure.Message {
			return failure
		}
		return &fault.Error{Kind: fault.ParseKind(d.GetKind()), Text: d.GetText(), Hint: d.GetHint(), Cause: textless{failure}}
	}
	kind := fault.ParseKind(d.GetKind())
	if kind == fault.Unclassified {
		kind = fault.Internal
	}
	return &fault.Error{Kind: kind, Text: d.GetText(), Hint: d.GetHint()}
}

// textless is a cause whose text is already part of the text of the error, so textless itself has
// no text.
type textless struct{ error }

func (textless) Error() string   { return "" }
func (t textless) Unwrap() error { return t.error }
