package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// WatchRequest builds the message that asks for changes.
func WatchRequest(r api.WatchRequest) *pb.WatchRequest {
	return &pb.WatchRequest{
		Classes: each(r.Classes, func(c model.ChangeClass) string { return string(c) }), Types: r.Types, Key: r.Key, Cursor: r.Cursor,
		Statuses: each(r.Statuses, func(s model.Status) pb.Status { return pb.Status(s) }),
		Kinds:    each(r.Kinds, func(k model.ChangeKind) string { return string(k) }), Queues: r.Queues,
	}
}

// ReadWatchRequest reads a request for changes.
func ReadWatchRequest(tenant string, r *pb.WatchRequest) (out api.WatchRequest, err error) {
	out = api.WatchRequest{Tenant: tenant, Cursor: r.GetCursor()}
	out.Types, out.Key, out.Queues = r.GetTypes(), r.GetKey(), r.GetQueues()
	out.Kinds = each(r.GetKinds(), func(k string) model.ChangeKind { return model.ChangeKind(k) })
	out.Classes = each(r.GetClasses(), func(c string) model.ChangeClass { return model.ChangeClass(c) })
	out.Statuses, err = readEach(tenant, r.GetStatuses(), func(_ string, s pb.Status) (model.Status, error) { return readStatus(s) })
	return out, err
}

// ChangePage builds the message for a page of changes.
func ChangePage(p api.ChangePage) *pb.ChangePage {
	return &pb.ChangePage{Changes: each(p.Changes, change), Cursor: p.Cursor, Gap: p.Gap, Partial: p.Partial}
}

// ReadChangePage reads a page of changes.
func ReadChangePage(tenant string, p *pb.ChangePage) (out api.ChangePage, err error) {
	out = api.ChangePage{Cursor: p.GetCursor(), Gap: p.GetGap(), Partial: p.GetPartial()}
	out.Changes, err = readEach(tenant, p.GetChanges(), readChange)
	return out, err
}

func change(c api.Change) *pb.Change {
	return &pb.Change{
		Class: string(c.Class), Kind: string(c.Kind), Address: Address(c.Address), Run: Run(c.Run), Task: c.Task, Name: c.Name, Of: c.Of, Queue: c.Queue,
		Status: pb.Status(c.Status), Reason: string(c.Reason), Locked: c.Locked, Seq: c.Seq, Node: node(c.Node), At: int64(c.At),
	}
}

func readChange(tenant string, c *pb.Change) (out api.Change, err error) {
	out = api.Change{
		Class: model.ChangeClass(c.GetClass()), Kind: model.ChangeKind(c.GetKind()), Address: ReadAddress(tenant, c.GetAddress()),
		Task: c.GetTask(), Name: c.GetName(), Of: c.GetOf(), Queue: c.GetQueue(), Reason: model.ReasonCode(c.GetReason()), Locked: c.GetLocked(),
		Seq: c.GetSeq(), At: model.Time(c.GetAt()),
	}
	if out.Run, err = ReadRun(c.GetRun()); err != nil {
		return out, err
	}
	if out.Node, err = readNode(c.GetNode()); err != nil {
		return out, err
	}
	if out.Status, err = readStatus(c.GetStatus()); err != nil {
		return out, err
	}
	return out, nil
}
