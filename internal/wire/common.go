package wire

import (
	"strings"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Address builds the message for an address without its tenant.
func Address(a model.Address) *pb.Address { return &pb.Address{Type: a.Type, Key: a.Key} }

// ReadAddress reads an address, and adds the tenant of the connection.
func ReadAddress(tenant string, a *pb.Address) model.Address {
	return model.Address{Tenant: tenant, Type: a.GetType(), Key: a.GetKey()}
}

// Run returns the bytes of an id. It returns nil for the zero id.
func Run(id model.RunID) []byte {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

// ReadRun reads an id. It returns the zero id if there are no bytes.
func ReadRun(b []byte) (id model.RunID, err error) {
	if len(b) == 0 {
		return id, nil
	}
	if len(b) != len(id) {
		return id, fault.New(fault.Invalid, "the id of a run has %d bytes, must be %d", len(b), len(id))
	}
	copy(id[:], b)
	return id, nil
}

// Payload builds the message for a value. It returns nil for an empty value.
func Payload(p model.Payload) *pb.Payload {
	if p.Data == nil && p.Encoding == "" {
		return nil
	}
	return &pb.Payload{Data: p.Data, Encoding: p.Encoding}
}

// ReadPayload reads a value.
func ReadPayload(p *pb.Payload) model.Payload {
	return model.Payload{Data: p.GetData(), Encoding: p.GetEncoding()}
}

// Failure builds the message for an error of user code. It returns nil for nil.
func Failure(f *model.Failure) *pb.Failure {
	if f == nil {
		return nil
	}
	return &pb.Failure{Kind: text(f.Kind), Type: text(f.Type), Message: text(f.Message), Stack: text(f.Stack), Permanent: f.Permanent}
}

// ReadFailure reads an error of user code.
func ReadFailure(f *pb.Failure) *model.Failure {
	if f == nil {
		return nil
	}
	return &model.Failure{Kind: f.GetKind(), Type: f.GetType(), Message: f.GetMessage(), Stack: f.GetStack(), Permanent: f.GetPermanent()}
}

// Event builds the message for an event, with its body in the stored encoding.
func Event(e *model.Event) *pb.Event {
	return &pb.Event{Position: e.Seq, At: int64(e.At), Kind: uint32(e.Kind), Body: model.AppendEvent(nil, e)}
}

// ReadEvent reads an event. A kind that this build does not know is an error.
func ReadEvent(e *pb.Event) (model.Event, error) {
	if e.GetKind() > 255 {
		return model.Event{}, fault.New(fault.Invalid, "event %d has kind %d, which this build does not know", e.GetPosition(), e.GetKind())
	}
	ev, err := model.DecodeEvent(e.GetPosition(), model.Time(e.GetAt()), model.EventKind(e.GetKind()), e.GetBody())
	if err != nil {
		return ev, fault.New(fault.Invalid, "%w", err)
	}
	return ev, nil
}

// Events builds the messages for many events with Event.
func Events(events []model.Event) []*pb.Event {
	out := make([]*pb.Event, len(events))
	for i := range events {
		out[i] = Event(&events[i])
	}
	return out
}

// ReadEvents reads many events with ReadEvent.
func ReadEvents(events []*pb.Event) ([]model.Event, error) {
	if len(events) == 0 {
		return nil, nil
	}
	out := make([]model.Event, len(events))
	for i, e := range events {
		var err error
		if out[i], err = ReadEvent(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Labels builds the messages for labels, in their order.
func Labels(labels []model.Label) []*pb.Label {
	var out []*pb.Label
	for _, l := range labels {
		out = append(out, &pb.Label{Name: l.Name, Value: l.Value})
	}
	return out
}

// ReadLabels reads labels.
func ReadLabels(labels []*pb.Label) []model.Label {
	var out []model.Label
	for _, l := range labels {
		out = append(out, model.Label{Name: l.GetName(), Value: l.GetValue()})
	}
	return out
}

// Retry builds the message for a retry policy. It returns nil for nil.
func Retry(r *model.Retry) *pb.Retry {
	if r == nil {
		return nil
	}
	return &pb.Retry{
		MaxAttempts: int64(r.MaxAttempts), Initial: int64(r.Initial), Max: int64(r.Max), Coefficient: r.Coefficient, Jitter: r.Jitter,
		Final: r.Final, Given: r.Given,
	}
}

// ReadRetry reads a policy. It returns nil for nil.
func ReadRetry(r *pb.Retry) *model.Retry {
	if r == nil {
		return nil
	}
	return &model.Retry{
		MaxAttempts: int(r.GetMaxAttempts()), Initial: time.Duration(r.GetInitial()), Max: time.Duration(r.GetMax()),
		Coefficient: r.GetCoefficient(), Jitter: r.GetJitter(), Final: r.GetFinal(), Given: r.GetGiven(),
	}
}

// TaskSpec builds the message that says how a task is executed. It returns nil for nil.
func TaskSpec(t *model.TaskSpec) *pb.TaskSpec {
	if t == nil {
		return nil
	}

	out := &pb.TaskSpec{
		Kind: t.Kind, Queue: t.Queue, Priority: int64(t.Priority), Fair: t.Fair, Weight: int64(t.Weight),
		ToStart: int64(t.ToStart), ToClose: int64(t.ToClose), Silence: int64(t.Silence), Total: int64(t.Total), Delay: int64(t.Delay),
		Breaker: t.Breaker, Limits: t.Limits, Trace: t.Trace,
	}

	if !t.Retry.IsZero() {
		out.Retry = Retry(&t.Retry)
	}
	if t.Same != nil {
		out.SameRun, out.SameStep = Run(t.Same.Run), t.Same.Step
	}
	for _, f := range t.Fences {
		out.Fences = append(out.Fences, &pb.Fence{Entity: Address(f.Entity), Token: f.Epoch})
	}

	return out
}

// ReadTaskSpec reads a spec. It returns nil for nil.
func ReadTaskSpec(tenant string, t *pb.TaskSpec) (*model.TaskSpec, error) {
	if t == nil {
		return nil, nil
	}

	out := &model.TaskSpec{
		Kind: t.GetKind(), Queue: t.GetQueue(), Priority: int(t.GetPriority()), Fair: t.GetFair(), Weight: int(t.GetWeight()),
		ToStart: time.Duration(t.GetToStart()), ToClose: time.Duration(t.GetToClose()), Silence: time.Duration(t.GetSilence()),
		Total: time.Duration(t.GetTotal()), Delay: time.Duration(t.GetDelay()),
		Breaker: t.GetBreaker(), Limits: t.GetLimits(), Trace: t.GetTrace(),
	}

	if r := ReadRetry(t.GetRetry()); r != nil {
		out.Retry = *r
	}

	if len(t.GetSameRun()) > 0 || t.GetSameStep() != "" {
		run, err := ReadRun(t.GetSameRun())
		if err != nil {
			return nil, err
		}
		out.Same = &model.TaskOrigin{Run: run, Step: t.GetSameStep()}
	}

	for _, f := range t.GetFences() {
		out.Fences = append(out.Fences, model.Fence{Entity: ReadAddress(tenant, f.GetEntity()), Epoch: f.GetToken()})
	}
	return out, nil
}

// TaskRef builds the message that names a task.
func TaskRef(r model.TaskRef) *pb.TaskRef {
	return &pb.TaskRef{Address: Address(r.Address), Run: Run(r.Run), Id: r.ID}
}

// ReadTaskRef reads the name of a task.
func ReadTaskRef(tenant string, r *pb.TaskRef) (model.TaskRef, error) {
	run, err := ReadRun(r.GetRun())
	return model.TaskRef{Address: ReadAddress(tenant, r.GetAddress()), Run: run, ID: r.GetId()}, err
}

// text returns a text as protobuf accepts it: bytes that are not UTF-8 become the replacement
// character. Error texts, for example, can have such bytes. Names and keys have none, because the
// engine refuses names and keys that are not valid UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
