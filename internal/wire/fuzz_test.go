package wire_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/wire"
)

// reader reads any bytes as a message of one type.
type reader func(body []byte) error

// readerOf returns a reader that decodes a message and passes it to the function read.
func readerOf[T, M any, P interface {
	*M
	proto.Message
}](read func(string, P) (T, error)) reader {
	return func(body []byte) error {
		m := P(new(M))
		if proto.Unmarshal(body, m) != nil {
			return nil // gRPC refuses it
		}
		_, err := read(tenant, m)
		return err
	}
}

// withoutTenant adapts a reader of a message that has no address, and so needs no tenant.
func withoutTenant[T any, P any](read func(P) (T, error)) func(string, P) (T, error) {
	return func(_ string, m P) (T, error) { return read(m) }
}

var readers = []reader{
	readerOf(wire.ReadStartRequest), readerOf(wire.ReadStartManyRequest), readerOf(wire.ReadSignalRequest), readerOf(wire.ReadSettleRequest),
	readerOf(wire.ReadOrderRequest), readerOf(wire.ReadSignalsRequest), readerOf(wire.ReadUpdateRequest), readerOf(wire.ReadQueryRequest),
	readerOf(wire.ReadTarget), readerOf(wire.ReadHistoryRequest), readerOf(wire.ReadListRequest), readerOf(wire.ReadPastRequest),
	readerOf(wire.ReadImportRequest), readerOf(wire.ReadDeleteRequest), readerOf(wire.ReadCallRequest), readerOf(wire.ReadListEntitiesRequest),
	readerOf(wire.ReadUnlockRequest), readerOf(wire.ReadMailboxRequest), readerOf(wire.ReadEditEntityRequest), readerOf(wire.ReadTakeItemsRequest), readerOf(wire.ReadItemsPage), readerOf(wire.ReadSendItemsRequest), readerOf(wire.ReadListDeadRequest), readerOf(wire.ReadDeadTaskRequest),
	readerOf(wire.ReadRequeueRequest), readerOf(wire.ReadUndoRequeueRequest), readerOf(wire.ReadTaskTarget), readerOf(wire.ReadTaskLogsRequest),
	readerOf(wire.ReadTaskStreamRequest), readerOf(wire.ReadWatchRequest), readerOf(wire.ReadChangePage), readerOf(wire.ReadLimit), readerOf(wire.ReadBreakerRule), readerOf(wire.ReadTaskSpec),
	// Items that a worker sends, and items that a server sends to it.
	readerOf(withoutTenant(wire.ReadTurn)), readerOf(wire.ReadOperated), readerOf(wire.ReadTaskReport), readerOf(wire.ReadBeats), readerOf(wire.ReadTaskWrite),
	readerOf(wire.ReadTaskRef), readerOf(wire.ReadActivation), readerOf(wire.ReadClaim), readerOf(withoutTenant(wire.ReadEvent)),
	// Replies, because a client does not trust its server blindly.
	readerOf(wire.ReadDescription), readerOf(wire.ReadEntityInfo), readerOf(wire.ReadDeadTask), readerOf(wire.ReadTaskStreamPage),
	readerOf(wire.ReadTaskLogsPage), readerOf(wire.ReadBreakerList), readerOf(wire.ReadStartManyReply), readerOf(wire.ReadLimitList),
}

// No bytes make a reader panic, and every refusal is Invalid.
func FuzzReadRequests(f *testing.F) {
	for _, m := range []proto.Message{
		&pb.StartRequest{Address: &pb.Address{Type: "a"}, Reuse: 7, With: []*pb.NamedPayload{nil}, Task: &pb.TaskSpec{SameRun: []byte{1}}},
		&pb.HistoryRequest{Target: &pb.Target{Run: []byte{1, 2}}, After: -1},
		&pb.ImportRequest{Start: &pb.Start{Run: []byte{1}, Carried: []*pb.HistoryEvent{{Kind: 999}}}, Events: []*pb.HistoryEvent{{}}},
		&pb.Turn{Run: make([]byte, 16), Ahead: 1, Close: &pb.Close{Status: 255}, Commands: []*pb.Command{{Kind: 1, Event: &pb.Event{Kind: 3}, Message: []byte{0xa0}}}},
		&pb.Operated{Entity: &pb.Address{Type: "entity:a"}, Results: []*pb.OperationResult{{Messages: [][]byte{{0xa1}}}}},
		&pb.TaskWrite{Ref: &pb.TaskRef{Run: []byte{1}}, Items: []*pb.TaskItem{{Kind: 999}, nil}},
		&pb.EntityInfo{Waiting: []*pb.MailboxItem{{Message: []byte{0xa1}}}},
	} {
		body, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		for i, read := range readers {
			if err := read(body); err != nil && !fault.Is(err, fault.Invalid) {
				t.Errorf("reader %d: %v (%s)", i, err, fault.KindOf(err))
			}
		}
	})
}
