package perdure

// RequestID lets a client repeat a request whose answer was lost. The engine carries out the
// request once, and a repetition with the same id gets the first answer. The engine remembers an id
// for a day, or for as long as embedded.Config.KeepRequests says.
//
// An id belongs to one target, so two executions, tasks or entities may use the same id. The
// following requests to an execution or a task share one space of ids: start or submit, signal,
// resolve or reject of a promise, cancel, retry, reset, fork, import and requeue. Updates of an
// execution have a space of their own. Calls of an entity or a service share one space, whether
// they wait (Call) or not (Send).
//
// Within its space, an id identifies one request: one verb, one name and one input. A different
// request with the same id gets ErrConflict and does nothing. Without an id, every request of a
// client is a new request. Workflows need no ids, because the engine delivers every message of a
// workflow once.
func RequestID(id string) interface {
	CallOption
	StartOption
	PastOption
	RequeueOption
} {
	return requestID(id)
}

type requestID string

func (r requestID) applyCall(o *stepOptions) { o.requestID = string(r) }

func (r requestID) applyStart(o *startOptions) { o.requestID = string(r) }

func (r requestID) applyPast(o *pastOptions) { o.request.RequestID = string(r) }

func (r requestID) applyRequeue(o *requeueOptions) { o.request.RequestID = string(r) }
