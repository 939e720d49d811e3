package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// CallRequest builds the message that calls an operation.
func CallRequest(r api.CallRequest) *pb.CallRequest {
	return &pb.CallRequest{
		Address: Address(r.Address), Name: r.Name, Input: Payload(r.Input), RequestId: r.RequestID, OneWay: r.OneWay, Brief: r.Brief, View: r.View,
	}
}

// ReadCallRequest reads a call.
func ReadCallRequest(tenant string, r *pb.CallRequest) (api.CallRequest, error) {
	return api.CallRequest{
		Address: ReadAddress(tenant, r.GetAddress()), Name: r.GetName(), Input: ReadPayload(r.GetInput()), RequestID: r.GetRequestId(),
		OneWay: r.GetOneWay(), Brief: r.GetBrief(), View: r.GetView(),
	}, nil
}

// Entity builds the message for the stored form of an entity.
func Entity(n model.Entity) *pb.Entity {
	return &pb.Entity{
		Address: Address(n.Address), Version: n.Version, Changed: int64(n.Changed), State: Payload(n.State), Exists: n.Exists, Created: int64(n.Created),
		Holder: Link(n.Holder), Held: int64(n.Held), Token: n.Epoch, Expires: int64(n.Expires), Alarm: int64(n.Alarm),
		Log: each(n.Log, operationRecord),
	}
}

func operationRecord(r model.OperationRecord) *pb.OperationRecord {
	return &pb.OperationRecord{
		Name: text(r.Name), At: int64(r.At), RequestId: r.RequestID, From: Link(r.From), Failure: Failure(r.Failure), Input: Payload(r.Input), Bytes: int64(r.Bytes),
	}
}

func readOperationRecord(tenant string, r *pb.OperationRecord) (model.OperationRecord, error) {
	from, err := ReadLink(tenant, r.GetFrom())
	return model.OperationRecord{
		Name: r.GetName(), At: model.Time(r.GetAt()), RequestID: r.GetRequestId(), From: from, Failure: ReadFailure(r.GetFailure()),
		Input: ReadPayload(r.GetInput()), Bytes: int(r.GetBytes()),
	}, err
}

// ReadEntity reads an entity.
func ReadEntity(tenant string, n *pb.Entity) (model.Entity, error) {
	holder, err := ReadLink(tenant, n.GetHolder())
	if err != nil {
		return model.Entity{}, err
	}
	log, err := readEach(tenant, n.GetLog(), readOperationRecord)
	return model.Entity{
		Address: ReadAddress(tenant, n.GetAddress()), Version: n.GetVersion(), Changed: model.Time(n.GetChanged()), State: ReadPayload(n.GetState()),
		Exists: n.GetExists(), Created: model.Time(n.GetCreated()), Holder: holder, Held: model.Time(n.GetHeld()), Epoch: n.GetToken(),
		Expires: model.Time(n.GetExpires()), Alarm: model.Time(n.GetAlarm()), Log: log,
	}, err
}

// EntityInfo builds the message that describes an entity.
func EntityInfo(i api.EntityInfo) *pb.EntityInfo {
	return &pb.EntityInfo{Entity: Entity(i.Entity), Waiting: each(i.Waiting, mailboxItem), More: i.More, Reasons: each(i.Reasons, Reason)}
}

// ReadEntityInfo reads the description of an entity.
func ReadEntityInfo(tenant string, i *pb.EntityInfo) (out api.EntityInfo, err error) {
	out.More = i.GetMore()
	if out.Entity, err = ReadEntity(tenant, i.GetEntity()); err != nil {
		return out, err
	}
	if out.Waiting, err = readEach(tenant, i.GetWaiting(), readMailboxItem); err != nil {
		return out, err
	}
	out.Reasons, err = readEach(tenant, i.GetReasons(), ReadReason)
	return out, err
}

// mailboxItem builds the message for a waiting call. It contains the call in the stored encoding. A
// damaged item may have no call.
func mailboxItem(i model.MailboxItem) *pb.MailboxItem {
	out := &pb.MailboxItem{Position: i.Seq, At: int64(i.At)}
	if i.Message.Kind != 0 {
		out.Message = model.AppendMessage(nil, &i.Message)
	}
	if d := i.Damaged; d != nil {
		out.Damaged = &pb.Damaged{Raw: d.Raw, Why: text(d.Why), Newer: d.Newer}
	}
	return out
}

func readMailboxItem(_ string, i *pb.MailboxItem) (model.MailboxItem, error) {
	out := model.MailboxItem{Seq: i.GetPosition(), At: model.Time(i.GetAt())}
	if d := i.GetDamaged(); d != nil {
		out.Damaged = &model.Damaged{Raw: d.GetRaw(), Why: d.GetWhy(), Newer: d.GetNewer()}
	}
	if len(i.GetMessage()) == 0 {
		return out, nil
	}
	m, err := model.DecodeMessage(i.GetMessage())
	if err != nil {
		return out, fault.New(fault.Invalid, "%w", err)
	}
	out.Message = m
	return out, nil
}

// ListEntitiesRequest builds the message that selects entities.
func ListEntitiesRequest(r api.EntityListRequest) *pb.ListEntitiesRequest {
	return &pb.ListEntitiesRequest{
		Type: r.Type, KeyPrefix: r.KeyPrefix, Locked: r.Locked, Limit: int64(r.Limit), Cursor: r.Cursor, MinVersion: r.MinVersion, MaxVersion: r.MaxVersion,
		ChangedFrom: int64(r.ChangedFrom), ChangedTo: int64(r.ChangedTo), Waiting: r.Waiting, Expired: r.Expired, Services: r.Services,
	}
}

// ReadListEntitiesRequest reads a selection of entities.
func ReadListEntitiesRequest(tenant string, r *pb.ListEntitiesRequest) (api.EntityListRequest, error) {
	return api.EntityListRequest{
		Tenant: tenant, Type: r.GetType(), KeyPrefix: r.GetKeyPrefix(), Locked: r.GetLocked(), Limit: int(r.GetLimit()), Cursor: r.GetCursor(),
		MinVersion: r.GetMinVersion(), MaxVersion: r.GetMaxVersion(), ChangedFrom: model.Time(r.GetChangedFrom()), ChangedTo: model.Time(r.GetChangedTo()),
		Waiting: r.GetWaiting(), Expired: r.GetExpired(), Services: r.GetServices(),
	}, nil
}

// EntityPage builds the message for one page of entities.
func EntityPage(p api.EntityListPage) *pb.EntityPage {
	return &pb.EntityPage{Entities: each(p.Entities, Entity), Cursor: p.Cursor}
}

// ReadEntityPage reads a page of entities.
func ReadEntityPage(tenant string, p *pb.EntityPage) (out api.EntityListPage, err error) {
	out.Cursor = p.GetCursor()
	out.Entities, err = readEach(tenant, p.GetEntities(), ReadEntity)
	return out, err
}

// UnlockRequest builds the message that takes a lock from its holder.
func UnlockRequest(r api.UnlockRequest) *pb.UnlockRequest {
	return &pb.UnlockRequest{Address: Address(r.Address), Token: r.Epoch, RequestId: r.RequestID}
}

// ReadUnlockRequest reads which lock to take from its holder.
func ReadUnlockRequest(tenant string, r *pb.UnlockRequest) (api.UnlockRequest, error) {
	return api.UnlockRequest{Address: ReadAddress(tenant, r.GetAddress()), Epoch: r.GetToken(), RequestID: r.GetRequestId()}, nil
}

// EditEntityRequest builds the message that replaces the state of an entity.
func EditEntityRequest(r api.EditRequest) *pb.EditEntityRequest {
	return &pb.EditEntityRequest{Address: Address(r.Address), Version: entityVersion(r.Version), State: Payload(r.State), RequestId: r.RequestID}
}

// ReadEditEntityRequest reads the new state of an entity.
func ReadEditEntityRequest(tenant string, r *pb.EditEntityRequest) (api.EditRequest, error) {
	return api.EditRequest{
		Address: ReadAddress(tenant, r.GetAddress()), Version: readEntityVersion(r.GetVersion()), State: ReadPayload(r.GetState()), RequestID: r.GetRequestId(),
	}, nil
}

// EditEntityReply builds the message with the version of an entity after an edit.
func EditEntityReply(v model.EntityVersion) *pb.EditEntityReply {
	return &pb.EditEntityReply{Version: entityVersion(v)}
}

// ReadEditEntityReply reads the version of an entity after an edit.
func ReadEditEntityReply(_ string, r *pb.EditEntityReply) (model.EntityVersion, error) {
	return readEntityVersion(r.GetVersion()), nil
}

func entityVersion(v model.EntityVersion) *pb.EntityVersion {
	return &pb.EntityVersion{Number: v.Number, Changed: int64(v.Changed)}
}

func readEntityVersion(v *pb.EntityVersion) model.EntityVersion {
	return model.EntityVersion{Number: v.GetNumber(), Changed: model.Time(v.GetChanged())}
}

// MailboxRequest builds the message that asks about a mailbox.
func MailboxRequest(r api.MailboxRequest) *pb.MailboxRequest {
	return &pb.MailboxRequest{Address: Address(r.Address), Verb: wordNumber[pb.MailboxVerb](mailboxVerbs, r.Do), Id: r.ID, Cursor: r.Cursor, Limit: int64(r.Limit)}
}

// ReadMailboxRequest reads a question about a mailbox.
func ReadMailboxRequest(tenant string, r *pb.MailboxRequest) (api.MailboxRequest, error) {
	do, err := readWord("operation on mailboxes", mailboxVerbs, r.GetVerb())
	return api.MailboxRequest{
		Address: ReadAddress(tenant, r.GetAddress()), Do: do, ID: r.GetId(), Cursor: r.GetCursor(), Limit: int(r.GetLimit()),
	}, err
}

// MailboxReply builds the message for a mailbox as an operator sees it.
func MailboxReply(c model.Calls) *pb.MailboxReply {
	return &pb.MailboxReply{Calls: each(c.Calls, mailboxCall), Total: int64(c.Total), Cursor: c.Cursor}
}

// ReadMailboxReply reads a mailbox.
func ReadMailboxReply(tenant string, r *pb.MailboxReply) (out model.Calls, err error) {
	out.Total, out.Cursor = int(r.GetTotal()), r.GetCursor()
	out.Calls, err = readEach(tenant, r.GetCalls(), readMailboxCall)
	return out, err
}

func mailboxCall(c model.Call) *pb.MailboxCall {
	return &pb.MailboxCall{
		Id: c.ID, Position: int64(c.Position), Kind: c.Kind, Operation: text(c.Operation), At: int64(c.At), Bytes: int64(c.Bytes), From: Link(c.From),
		RequestId: c.RequestID, OneWay: c.OneWay, Stored: c.Stored, Running: c.Running, Input: Payload(c.Input),
	}
}

func readMailboxCall(tenant string, c *pb.MailboxCall) (model.Call, error) {
	from, err := ReadLink(tenant, c.GetFrom())
	return model.Call{
		ID: c.GetId(), Position: int(c.GetPosition()), Kind: c.GetKind(), Operation: c.GetOperation(), At: model.Time(c.GetAt()), Bytes: int(c.GetBytes()),
		From: from, RequestID: c.GetRequestId(), OneWay: c.GetOneWay(), Stored: c.GetStored(), Running: c.GetRunning(), Input: ReadPayload(c.GetInput()),
	}, err
}
