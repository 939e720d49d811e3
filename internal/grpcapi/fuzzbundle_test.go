package grpcapi_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/bundle"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/malformed"
)

// FuzzBundle makes malformed calls in bundles, and sends bundles that are malformed themselves.
// Each call that the client does not give up gets one answer, and no answer says that the server
// failed. A breach of the protocol ends only its own stream, and nothing panics.
func FuzzBundle(f *testing.F) {
	d := open(f, func(c *grpcapi.Config) { c.MaxMessage = 1 << 20 })
	methods := slices.DeleteFunc(malformed.Methods(pb.File_perdure_v1_client_proto), func(m protoreflect.MethodDescriptor) bool {
		return m.IsStreamingServer() || m.IsStreamingClient()
	})
	before := malformed.Kept()
	for i := range *fuzzRounds {
		f.Add(uint64(i), []byte(strings.Repeat("\x0a\x05", i)))
	}

	f.Fuzz(func(t *testing.T, seed uint64, raw []byte) {
		b := &bundleFuzz{t: t, door: d, r: rand.New(rand.NewPCG(seed, 3)), raw: raw, methods: methods}
		b.callAll()
		b.breach()
		if strings.Contains(d.log.String(), "panicked") {
			t.Fatalf("a handler panicked:\n%s", d.log)
		}
	})
	f.Cleanup(func() {
		if after := malformed.Kept(); after > before+mostKept {
			f.Errorf("the server keeps %d MiB, and %d MiB before the calls", after>>20, before>>20)
		}
	})
}

// bundleFuzz is one round of malformed bundles.
type bundleFuzz struct {
	t       *testing.T
	door    *door
	r       *rand.Rand
	raw     []byte
	methods []protoreflect.MethodDescriptor
}

// callAll makes malformed calls of all methods on one stream, and checks the answers.
func (b *bundleFuzz) callAll() {
	b.t.Helper()
	ctx, leave := context.WithTimeout(b.door.ctx, 5*time.Minute)
	defer leave()
	st, err := b.door.client.Bundle(ctx)
	if err != nil {
		b.t.Fatal(err)
	}

	calls := b.calls()
	unknown, givenUp := map[uint64]bool{}, map[uint64]bool{}
	for _, c := range calls {
		unknown[c.GetId()] = !slices.ContainsFunc(b.methods, func(m protoreflect.MethodDescriptor) bool { return string(m.Name()) == c.GetMethod() })
	}
	sent := make(chan error, 1)
	go func() { sent <- b.send(st, calls, givenUp) }()

	answered := map[uint64]bool{}
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.t.Fatalf("the stream ended with %v", err)
		}
		for _, a := range m.GetAnswers() {
			if answered[a.GetId()] {
				b.t.Errorf("call %d has two answers", a.GetId())
			}
			answered[a.GetId()] = true
			b.check(a, unknown)
		}
	}
	if err := <-sent; err != nil {
		b.t.Fatal(err)
	}
	for _, c := range calls {
		if !answered[c.GetId()] && !givenUp[c.GetId()] {
			b.t.Errorf("%s has no answer", c.GetMethod())
		}
	}
}

// calls returns malformed calls of every method, and of methods that do not exist or that bundles
// do not carry. They are in a random order, and there are fewer of them than the stream may have
// open.
func (b *bundleFuzz) calls() (all []*pb.BundledCall) {
	words := malformed.Words
	add := func(method string, request []byte) {
		wait := int64(20 * time.Millisecond)
		if b.r.IntN(4) == 0 { // never longer, because the stream ends only after its last call
			wait = min(wait, malformed.Numbers[b.r.IntN(len(malformed.Numbers))])
		}
		all = append(all, &pb.BundledCall{Method: method, Request: request, Timeout: &wait, Traceparent: words[b.r.IntN(len(words))], Tracestate: words[b.r.IntN(len(words))]})
	}
	for _, m := range b.methods {
		for _, request := range malformed.Requests(b.r, m, b.raw, words) {
			add(string(m.Name()), request)
		}
	}
	for _, method := range append(slices.Clone(words), "Bundle", "Watch", "perdure.v1.ClientService/Start", "CreateKey") {
		add(method, malformed.Mutate(b.r, b.raw))
	}

	b.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(len(all), bundle.MaxCalls)]
	for i, c := range all {
		c.Id = b.r.Uint64()&^0xffff | uint64(i) // no two are equal
	}
	return all
}

// send sends calls in bundles of random sizes, and gives some of them up.
func (b *bundleFuzz) send(st grpc.BidiStreamingClient[pb.CallBundle, pb.AnswerBundle], calls []*pb.BundledCall, givenUp map[uint64]bool) error {
	first := &pb.CallBundle{MaxReply: malformed.Numbers[b.r.IntN(len(malformed.Numbers))], GivenUp: []uint64{0, 1 << 63}}
	if err := st.Send(first); err != nil {
		return err
	}
	for len(calls) > 0 {
		n := 1 + b.r.IntN(min(len(calls), 40))
		m := &pb.CallBundle{Calls: calls[:n], MaxReply: -1}
		if b.r.IntN(3) == 0 {
			id := calls[b.r.IntN(n)].GetId()
			m.GivenUp, givenUp[id] = []uint64{id, id, 7}, true
		}
		if err := st.Send(m); err != nil {
			return err
		}
		calls = calls[n:]
	}
	return st.CloseSend()
}

// check reports an answer that says that the server failed.
func (b *bundleFuzz) check(a *pb.BundledAnswer, unknown map[uint64]bool) {
	b.t.Helper()
	is, sent := unknown[a.GetId()]
	var p spb.Status
	if err := proto.Unmarshal(a.GetStatus(), &p); err != nil || !sent || a.GetUntouched() {
		b.t.Errorf("the answer %v is to a call of the client: %v, %v", a, sent, err)
	}
	switch code := codes.Code(p.GetCode()); {
	case (code == codes.Unimplemented) != is:
		b.t.Errorf("%v: %s, unknown: %v", code, p.GetMessage(), is)
	case code == codes.Unknown || code == codes.DataLoss || code == codes.Internal:
		b.t.Errorf("%v: %s", code, p.GetMessage())
	case code != codes.OK && len(a.GetReply()) > 0:
		b.t.Errorf("a call that failed with %v has a reply", code)
	}
}

// breach sends messages that no client sends. The server ends the stream with the reason, or
// ignores the message.
func (b *bundleFuzz) breach() {
	b.t.Helper()
	call := func(id uint64) *pb.BundledCall { return &pb.BundledCall{Id: id, Method: "Server"} }
	many := func(n int) (all []*pb.BundledCall) {
		for i := range n {
			all = append(all, call(uint64(i)))
		}
		return all
	}
	random := dynamicpb.NewMessage((&pb.CallBundle{}).ProtoReflect().Descriptor())
	malformed.Fill(random, 2, b.r.IntN, malformed.Values(malformed.Numbers[b.r.IntN(len(malformed.Numbers))], "Server", b.raw))

	for _, m := range []struct {
		raw  []byte
		want []codes.Code
	}{
		// gRPC cannot decode the message, or the message is empty.
		{malformed.Mutate(b.r, b.raw), []codes.Code{codes.OK, codes.Internal, codes.DeadlineExceeded}},
		{b.encoded(random), []codes.Code{codes.OK, codes.DeadlineExceeded}},
		{b.encoded(&pb.CallBundle{Calls: many(bundle.MaxCalls + 1)}), []codes.Code{codes.ResourceExhausted}},
		{b.encoded(&pb.CallBundle{GivenUp: make([]uint64, 4*bundle.MaxCalls+1)}), []codes.Code{codes.ResourceExhausted}},
		{make([]byte, 1<<20+1), []codes.Code{codes.ResourceExhausted}},
	} {
		err := b.sendRaw(m.raw)
		if code := status.Code(err); !slices.Contains(m.want, code) || code == codes.Internal && !strings.Contains(err.Error(), "unmarshal") {
			b.t.Errorf("%.100x: %v, want one of %v", m.raw, err, m.want)
		}
	}
}

// encoded encodes a message.
func (b *bundleFuzz) encoded(m proto.Message) []byte {
	b.t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	return raw
}

// sendRaw sends one message on a stream of its own, and returns how the stream ends; nil for a
// stream that ends well.
func (b *bundleFuzz) sendRaw(raw []byte) error {
	ctx, leave := context.WithTimeout(b.door.ctx, 5*time.Second)
	defer leave()
	st, err := b.door.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/perdure.v1.ClientService/Bundle", grpc.ForceCodecV2(malformed.Bytes{}))
	if err != nil {
		return err
	}
	if err := errors.Join(st.SendMsg(raw), st.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		var reply []byte
		if err := st.RecvMsg(&reply); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
