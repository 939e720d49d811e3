package storetest

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Text returns a text payload.
func Text(s string) model.Payload { return model.Payload{Data: []byte(s), Encoding: "text"} }

// Subject is a run of a test. Its methods build rows of the run.
type Subject struct {
	store.RunKey
	Start model.Start
}

// StartRow returns the row that starts the run. If the address is taken, the store refuses the
// batch.
func (s Subject) StartRow() store.StartRow { return store.StartRow{Shard: s.Shard, Start: s.Start} }

// StartIfAbsent returns the row that starts the run unless the address is taken.
func (s Subject) StartIfAbsent() store.StartRow {
	return store.StartRow{Shard: s.Shard, Start: s.Start, IfAbsent: true}
}

// Replace returns the row that starts the run in place of another run of the same address.
func (s Subject) Replace(old model.RunID) store.StartRow {
	return store.StartRow{Shard: s.Shard, Start: s.Start, Replaces: old}
}

// Close returns the row that ends the run with a status.
func (s Subject) Close(status model.Status) store.CloseRow {
	return store.CloseRow{RunKey: s.RunKey, Outcome: s.Outcome(status)}
}

// Outcome returns the outcome in the row that Close returns.
func (s Subject) Outcome(status model.Status) model.Outcome {
	return model.Outcome{Status: status, Output: Text("output of " + s.Start.Address.Key), At: s.Start.At + 1000, Seen: 3}
}

// Park returns the row that marks the run as parked for a signal.
func (s Subject) Park() store.MarkRow {
	return store.MarkRow{RunKey: s.RunKey, Parked: true, Waits: []model.Reason{{Code: model.WaitSignal, Name: "go"}}}
}

// Unpark returns the row that marks the run as neither parked nor blocked.
func (s Subject) Unpark() store.MarkRow { return store.MarkRow{RunKey: s.RunKey} }

// Event returns a signal at a position of the run.
func (s Subject) Event(seq int64) store.EventRow {
	return store.EventRow{RunKey: s.RunKey, Event: model.Event{
		Seq: seq, At: s.Start.At + model.Time(seq), Kind: model.EventSignalReceived, Name: "go", Input: Text("signal"),
	}}
}

// Timer returns a timer of the run.
func (s Subject) Timer(id string, due model.Time) store.Timer {
	return store.Timer{Shard: s.Shard, Run: s.Run, ID: id, Due: due, Address: s.Start.Address}
}

// Stop returns the key that deletes a timer of the run.
func (s Subject) Stop(id string) store.TimerKey { return store.TimerKey{RunKey: s.RunKey, ID: id} }

// StopAll returns the key that deletes all timers of the run.
func (s Subject) StopAll() store.RunKey { return s.RunKey }

// Execution returns the row of the run while it is open and current.
func (s Subject) Execution() store.Execution {
	return store.Execution{Shard: s.Shard, Start: s.Start, Outcome: model.Outcome{Status: model.Running}, Current: true}
}

// ClosedRow returns the row of the run after Close. The parameter current is false if another run
// has replaced the run.
func (s Subject) ClosedRow(status model.Status, current bool) store.Execution {
	return store.Execution{Shard: s.Shard, Start: s.Start, Outcome: s.Outcome(status), Current: current}
}

// Head returns the result of LoadRunnable for the run.
func (s Subject) Head() store.RunHead {
	return store.RunHead{RunKey: s.RunKey, Address: s.Start.Address}
}

// Message returns a message at a position of a pair of shards.
func Message(to, from model.ShardID, seq int64) store.MessageRow {
	return store.MessageRow{To: to, From: from, Seq: seq, Message: model.Message{
		Kind: model.MessageSignal, Name: "go", Input: Text("message"),
		To:   model.Address{Tenant: model.DefaultTenant, Type: "order", Key: "receiver"},
		From: model.Link{Address: model.Address{Tenant: model.DefaultTenant, Type: "order", Key: "sender"}, ID: "send"},
	}}
}

// Request returns a request to the run.
func (s Subject) Request(id model.RunID, request string) store.InboxRow {
	return store.InboxRow{Shard: s.Shard, ID: id, Message: model.Message{
		Kind: model.MessageSignal, To: s.Start.Address, Name: "go", Input: Text("request"), RequestID: request,
	}}
}

// Reply returns the remembered answer to a request to the run.
func (s Subject) Reply(request string, at model.Time) store.Reply {
	return store.Reply{RequestKey: s.RequestKey(request), At: at, Body: []byte("answer to " + request)}
}

// RequestKey names a request to the run.
func (s Subject) RequestKey(request string) store.RequestKey {
	return store.RequestKey{Shard: s.Shard, Address: s.Start.Address, ID: request}
}

// Consume returns the key that deletes a request from the inbox.
func Consume(r store.InboxRow) store.InboxKey { return store.InboxKey{Shard: r.Shard, ID: r.ID} }
