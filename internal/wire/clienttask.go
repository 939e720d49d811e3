package wire

import (
	"math"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// TaskTarget builds the message that names a task.
func TaskTarget(t api.TaskTarget) *pb.TaskTarget {
	return &pb.TaskTarget{Target: Target(t.Target), Step: t.Step}
}

// ReadTaskTarget reads the name of a task.
func ReadTaskTarget(tenant string, t *pb.TaskTarget) (api.TaskTarget, error) {
	target, err := ReadTarget(tenant, t.GetTarget())
	return api.TaskTarget{Target: target, Step: t.GetStep()}, err
}

// TaskStatesReply builds the message with the states of a task.
func TaskStatesReply(r api.TaskStatesReply) *pb.TaskStatesReply {
	return &pb.TaskStatesReply{Run: Run(r.Run), States: each(r.States, func(s api.TaskState) *pb.TaskState {
		return &pb.TaskState{Name: s.Name, Value: Payload(s.Value)}
	})}
}

// ReadTaskStatesReply reads the states of a task.
func ReadTaskStatesReply(_ string, r *pb.TaskStatesReply) (api.TaskStatesReply, error) {
	run, err := ReadRun(r.GetRun())
	return api.TaskStatesReply{Run: run, States: each(r.GetStates(), func(s *pb.TaskState) api.TaskState {
		return api.TaskState{Name: s.GetName(), Value: ReadPayload(s.GetValue())}
	})}, err
}

// TaskLogsRequest builds the message that asks for log lines.
func TaskLogsRequest(r api.TaskLogsRequest) *pb.TaskLogsRequest {
	return &pb.TaskLogsRequest{Task: TaskTarget(r.TaskTarget), After: r.After, Limit: int64(r.Limit), Wait: r.Wait}
}

// ReadTaskLogsRequest reads a request for log lines.
func ReadTaskLogsRequest(tenant string, r *pb.TaskLogsRequest) (api.TaskLogsRequest, error) {
	target, err := ReadTaskTarget(tenant, r.GetTask())
	return api.TaskLogsRequest{TaskTarget: target, After: r.GetAfter(), Limit: int(r.GetLimit()), Wait: r.GetWait()}, err
}

// TaskLogsPage builds the message for a page of lines.
func TaskLogsPage(p api.TaskLogsPage) *pb.TaskLogsPage {
	return &pb.TaskLogsPage{
		Run: Run(p.Run), Cursor: p.Cursor, Ended: p.Ended,
		Lines: each(p.Lines, func(l api.TaskLine) *pb.TaskLine {
			return &pb.TaskLine{Step: l.Step, At: int64(l.At), Level: int32(l.Level), Text: text(l.Text)}
		}),
	}
}

// ReadTaskLogsPage reads a page of lines.
func ReadTaskLogsPage(tenant string, p *pb.TaskLogsPage) (out api.TaskLogsPage, err error) {
	out = api.TaskLogsPage{Cursor: p.GetCursor(), Ended: p.GetEnded()}
	if out.Run, err = ReadRun(p.GetRun()); err != nil {
		return out, err
	}
	out.Lines, err = readEach(tenant, p.GetLines(), func(_ string, l *pb.TaskLine) (api.TaskLine, error) {
		if n := l.GetLevel(); n < math.MinInt16 || n > math.MaxInt16 {
			return api.TaskLine{}, fault.New(fault.Invalid, "there is no level %d", n)
		}
		return api.TaskLine{Step: l.GetStep(), At: model.Time(l.GetAt()), Level: int16(l.GetLevel()), Text: l.GetText()}, nil
	})
	return out, err
}

// TaskStreamRequest builds the message that asks for streamed items.
func TaskStreamRequest(r api.TaskStreamRequest) *pb.TaskStreamRequest {
	return &pb.TaskStreamRequest{Task: TaskTarget(r.TaskTarget), After: r.After, Limit: int64(r.Limit), Wait: r.Wait}
}

// ReadTaskStreamRequest reads a request for streamed items.
func ReadTaskStreamRequest(tenant string, r *pb.TaskStreamRequest) (api.TaskStreamRequest, error) {
	target, err := ReadTaskTarget(tenant, r.GetTask())
	return api.TaskStreamRequest{TaskTarget: target, After: r.GetAfter(), Limit: int(r.GetLimit()), Wait: r.GetWait()}, err
}

// TaskStreamPage builds the message for a page of streamed items, or for a part of a page.
func TaskStreamPage(p api.TaskStreamPage) *pb.TaskStreamPage {
	return &pb.TaskStreamPage{
		Run: Run(p.Run), Ended: p.Ended,
		Items: each(p.Items, func(i model.StreamItem) *pb.StreamItem {
			return &pb.StreamItem{Position: i.Position, Kind: pb.StreamKind(i.Kind), At: int64(i.At), Value: Payload(i.Value)}
		}),
	}
}

// ReadTaskStreamPage reads streamed items.
func ReadTaskStreamPage(tenant string, p *pb.TaskStreamPage) (out api.TaskStreamPage, err error) {
	out.Ended = p.GetEnded()
	if out.Run, err = ReadRun(p.GetRun()); err != nil {
		return out, err
	}
	out.Items, err = readEach(tenant, p.GetItems(), func(_ string, i *pb.StreamItem) (model.StreamItem, error) {
		kind, err := readStreamKind(i.GetKind())
		return model.StreamItem{Position: i.GetPosition(), Kind: kind, At: model.Time(i.GetAt()), Value: ReadPayload(i.GetValue())}, err
	})
	return out, err
}
