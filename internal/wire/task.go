package wire

import (
	"math"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Claim builds the message for a task handed to a worker.
func Claim(c *model.Claim) *pb.Claim {
	return &pb.Claim{
		Ref: TaskRef(c.Ref.TaskRef), Claim: c.Ref.Claim, Spec: TaskSpec(c.Spec), Input: Payload(c.Input), Attempt: int64(c.Attempt),
		Scheduled: int64(c.Scheduled), Claimed: int64(c.Claimed), Deadline: int64(c.Deadline), Visible: int64(c.Visible), Trace: c.Trace,
		Identity: Run(c.Identity), Step: c.Step, Progress: Payload(c.Progress), Canceled: c.Canceled,
		Parent: Link(c.Parent),
	}
}

// ReadClaim reads a task handed to a worker.
func ReadClaim(tenant string, c *pb.Claim) (model.Claim, error) {
	ref, err := ReadClaimRef(tenant, c.GetRef(), c.GetClaim())
	if err != nil {
		return model.Claim{}, err
	}
	spec, err := ReadTaskSpec(tenant, c.GetSpec())
	if err != nil {
		return model.Claim{}, err
	}
	if spec == nil {
		return model.Claim{}, fault.New(fault.Invalid, "a claim of %s without a spec", ref)
	}
	identity, err := ReadRun(c.GetIdentity())
	if err != nil {
		return model.Claim{}, err
	}
	parent, err := ReadLink(tenant, c.GetParent())
	return model.Claim{
		Ref: ref, Spec: spec, Input: ReadPayload(c.GetInput()), Attempt: int(c.GetAttempt()), Scheduled: model.Time(c.GetScheduled()),
		Claimed: model.Time(c.GetClaimed()), Deadline: model.Time(c.GetDeadline()), Visible: model.Time(c.GetVisible()), Trace: c.GetTrace(),
		Identity: identity, Step: c.GetStep(), Progress: ReadPayload(c.GetProgress()), Canceled: c.GetCanceled(),
		Parent: parent,
	}, err
}

// ReadClaimRef reads the token of a claim.
func ReadClaimRef(tenant string, r *pb.TaskRef, claim int64) (model.ClaimRef, error) {
	ref, err := ReadTaskRef(tenant, r)
	return model.ClaimRef{TaskRef: ref, Claim: claim}, err
}

// TaskReport builds the message that says how a claim ended.
func TaskReport(r *model.TaskReport) *pb.TaskReport {
	return &pb.TaskReport{
		Ref: TaskRef(r.Ref.TaskRef), Claim: r.Ref.Claim, Output: Payload(r.Output), Failure: Failure(r.Failure),
		RetryAfter: int64(r.RetryAfter), Returned: r.Returned, After: int64(r.After),
	}
}

// ReadTaskReport reads how a claim ended.
func ReadTaskReport(tenant string, r *pb.TaskReport) (model.TaskReport, error) {
	ref, err := ReadClaimRef(tenant, r.GetRef(), r.GetClaim())
	return model.TaskReport{
		Ref: ref, Output: ReadPayload(r.GetOutput()), Failure: ReadFailure(r.GetFailure()), RetryAfter: time.Duration(r.GetRetryAfter()),
		Returned: r.GetReturned(), After: time.Duration(r.GetAfter()),
	}, err
}

// Beats builds the message with heartbeats.
func Beats(id uint64, beats []api.Beat) *pb.Beats {
	out := &pb.Beats{Id: id, Beats: make([]*pb.Beat, len(beats))}
	for i := range beats {
		b := &pb.Beat{Ref: TaskRef(beats[i].Claim.TaskRef), Claim: beats[i].Claim.Claim}
		if p := beats[i].Progress; p != nil {
			b.Progress = &pb.Payload{Data: p.Data, Encoding: p.Encoding}
		}
		out.Beats[i] = b
	}
	return out
}

// ReadBeats reads heartbeats.
func ReadBeats(tenant string, beats *pb.Beats) ([]api.Beat, error) {
	out := make([]api.Beat, len(beats.GetBeats()))
	for i, b := range beats.GetBeats() {
		ref, err := ReadClaimRef(tenant, b.GetRef(), b.GetClaim())
		if err != nil {
			return nil, err
		}
		out[i].Claim = ref
		if b.GetProgress() != nil {
			p := ReadPayload(b.GetProgress())
			out[i].Progress = &p
		}
	}
	return out, nil
}

// TaskWrite builds the message for data that a claim writes outside the history of its run.
func TaskWrite(id uint64, w *model.TaskWrite) *pb.TaskWrite {
	out := &pb.TaskWrite{Id: id, Ref: TaskRef(w.Ref.TaskRef), Claim: w.Ref.Claim, First: w.First, Items: make([]*pb.TaskItem, len(w.Items))}
	for i := range w.Items {
		it := &w.Items[i]
		out.Items[i] = &pb.TaskItem{Kind: uint32(it.Kind), Name: it.Name, Value: Payload(it.Value), Level: int32(it.Level), Text: text(it.Text), At: int64(it.At)}
	}
	return out
}

// ReadTaskWrite reads what a claim writes.
func ReadTaskWrite(tenant string, w *pb.TaskWrite) (model.TaskWrite, error) {
	ref, err := ReadClaimRef(tenant, w.GetRef(), w.GetClaim())
	if err != nil {
		return model.TaskWrite{}, err
	}
	out := model.TaskWrite{Ref: ref, First: w.GetFirst(), Items: make([]model.TaskItem, len(w.GetItems()))}
	for i, it := range w.GetItems() {
		if it.GetKind() > math.MaxUint8 || it.GetLevel() < math.MinInt16 || it.GetLevel() > math.MaxInt16 {
			return out, fault.New(fault.Invalid, "a task writes an item of kind %d and level %d, which this build does not know", it.GetKind(), it.GetLevel())
		}
		out.Items[i] = model.TaskItem{
			Kind: model.ItemKind(it.GetKind()), Name: it.GetName(), Value: ReadPayload(it.GetValue()), Level: int16(it.GetLevel()), Text: it.GetText(), At: model.Time(it.GetAt()),
		}
	}
	return out, nil
}

// States builds the message with the named values of a task.
func States(id uint64, states []api.TaskState, err error) *pb.States {
	out := &pb.States{Id: id, Error: ErrorDetail(err)}
	for i := range states {
		out.States = append(out.States, &pb.State{Name: states[i].Name, Value: Payload(states[i].Value)})
	}
	return out
}

// ReadStates reads the named values of a task.
func ReadStates(s *pb.States) ([]api.TaskState, error) {
	var out []api.TaskState
	for _, st := range s.GetStates() {
		out = append(out, api.TaskState{Name: st.GetName(), Value: ReadPayload(st.GetValue())})
	}
	return out, ReadError(s.GetError())
}
