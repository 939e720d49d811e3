package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// TakeItemsRequest builds the message for a request of the reader of a stream. The verbs have the
// same numbers in the protocol as in package model.
func TakeItemsRequest(r model.ItemsTake) *pb.TakeItemsRequest {
	return &pb.TakeItemsRequest{Entity: Address(r.Entity), Stream: r.ID, Verb: pb.TakeVerb(r.Do), After: r.After}
}

// ReadTakeItemsRequest reads a request of the reader of a stream.
func ReadTakeItemsRequest(tenant string, r *pb.TakeItemsRequest) (model.ItemsTake, error) {
	verb := r.GetVerb()
	if verb < pb.TakeVerb_TAKE_VERB_OPEN || verb > pb.TakeVerb_TAKE_VERB_LEAVE {
		return model.ItemsTake{}, fault.New(fault.Invalid, "take items: there is no verb %d", verb)
	}
	return model.ItemsTake{Entity: ReadAddress(tenant, r.GetEntity()), ID: r.GetStream(), Do: model.TakeVerb(verb), After: r.GetAfter()}, nil
}

// ItemsPage builds the message with items of a stream.
func ItemsPage(p model.ItemsPage) *pb.ItemsPage {
	return &pb.ItemsPage{Items: each(p.Items, item), Ended: p.Ended, Failure: Failure(p.Failure)}
}

// ReadItemsPage reads items of a stream.
func ReadItemsPage(_ string, p *pb.ItemsPage) (model.ItemsPage, error) {
	return model.ItemsPage{Items: readItems(p.GetItems()), Ended: p.GetEnded(), Failure: ReadFailure(p.GetFailure())}, nil
}

// SendItemsRequest builds the message that sends items of a stream.
func SendItemsRequest(r model.ItemsSend) *pb.SendItemsRequest {
	return &pb.SendItemsRequest{
		Entity: Address(r.Entity), Stream: r.ID, First: r.First, Items: each(r.Items, item), Ended: r.Ended, Failure: Failure(r.Failure),
	}
}

// ReadSendItemsRequest reads sent items.
func ReadSendItemsRequest(tenant string, r *pb.SendItemsRequest) (model.ItemsSend, error) {
	return model.ItemsSend{
		Entity: ReadAddress(tenant, r.GetEntity()), ID: r.GetStream(), First: r.GetFirst(), Items: readItems(r.GetItems()),
		Ended: r.GetEnded(), Failure: ReadFailure(r.GetFailure()),
	}, nil
}

// SendItemsReply builds the message with the number of the last item that the owner has.
func SendItemsReply(last int64) *pb.SendItemsReply { return &pb.SendItemsReply{Last: last} }

// ReadSendItemsReply reads the number of the last item that the owner has.
func ReadSendItemsReply(_ string, r *pb.SendItemsReply) (int64, error) { return r.GetLast(), nil }

// item builds the message for an item of a stream. Unlike Payload, it does not return nil for an
// empty value.
func item(p model.Payload) *pb.Payload { return &pb.Payload{Data: p.Data, Encoding: p.Encoding} }

func readItems(items []*pb.Payload) []model.Payload { return each(items, ReadPayload) }
