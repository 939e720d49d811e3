package grpcapi_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/bundle"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/grpcapi"
)

// bundleOf opens a stream for bundles and reads the first bundle of the server.
func bundleOf(t *testing.T, d *door) grpc.BidiStreamingClient[pb.CallBundle, pb.AnswerBundle] {
	t.Helper()
	st, err := d.client.Bundle(d.ctx)
	if err != nil {
		t.Fatal(err)
	}
	first, err := st.Recv()
	if err != nil || first.GetMost() != bundle.MaxCalls || len(first.GetAnswers()) > 0 {
		t.Fatalf("the first bundle is %v, %v", first, err)
	}
	return st
}

// encode encodes a request.
func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// codeOf returns the code of an answer.
func codeOf(t *testing.T, a *pb.BundledAnswer) codes.Code {
	t.Helper()
	var p spb.Status
	if err := proto.Unmarshal(a.GetStatus(), &p); err != nil {
		t.Fatal(err)
	}
	return codes.Code(p.GetCode())
}

// answersTo sends calls in one bundle and returns their answers by id.
func answersTo(t *testing.T, st grpc.BidiStreamingClient[pb.CallBundle, pb.AnswerBundle], calls ...*pb.BundledCall) map[uint64]*pb.BundledAnswer {
	t.Helper()
	if err := st.Send(&pb.CallBundle{Calls: calls}); err != nil {
		t.Fatal(err)
	}
	all := map[uint64]*pb.BundledAnswer{}
	for len(all) < len(calls) {
		m, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range m.GetAnswers() {
			all[a.GetId()] = a
		}
	}
	return all
}

// The server answers a call that makes no sense with an error. The other calls of the bundle and
// the stream continue.
func TestNonsenseInABundle(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	st := bundleOf(t, d)
	count := encode(t, &pb.ListRequest{})
	all := answersTo(t, st,
		&pb.BundledCall{Id: 1, Method: "Count", Request: count},
		&pb.BundledCall{Id: 2, Method: "Count", Request: []byte{0xff}},
		&pb.BundledCall{Id: 3, Method: "Nothing", Request: count},
		&pb.BundledCall{Id: 4, Method: strings.Repeat("x", 100_000)},
		&pb.BundledCall{Id: 5, Method: "Bundle"}, // streams do not go into bundles
		&pb.BundledCall{Id: 6, Method: "Watch"},
		&pb.BundledCall{Id: 7, Method: "../WorkerService/Work"},
		&pb.BundledCall{Id: 8, Method: "Describe"},
		&pb.BundledCall{Id: 9, Method: "Count", Request: count, Timeout: proto.Int64(-1)},
		&pb.BundledCall{Id: 10, Method: "Count", Request: count, Traceparent: strings.Repeat("nonsense", 1000)},
	)

	for id, want := range map[uint64]codes.Code{
		1: codes.OK, 2: codes.InvalidArgument, 3: codes.Unimplemented, 4: codes.Unimplemented, 5: codes.Unimplemented, 6: codes.Unimplemented,
		7: codes.Unimplemented, 8: codes.InvalidArgument, 10: codes.OK,
	} {
		if got := codeOf(t, all[id]); got != want {
			t.Errorf("call %d: %s, want %s", id, got, want)
		}
	}
	if codeOf(t, all[9]) == codes.OK {
		t.Error("a call whose deadline has passed succeeds")
	}
	if text := d.log.String(); strings.Contains(text, "level=ERROR") {
		t.Errorf("the server takes nonsense for its own fault: %s", text)
	}
}

// blocking is an engine whose Count waits until its caller gives up.
type blocking struct {
	api.Backend

	entered chan struct{}
	left    chan error
	inside  atomic.Int32
	most    atomic.Int32
}

func (b *blocking) Count(ctx context.Context, _ api.ListRequest) (int64, error) {
	if n := b.inside.Add(1); n > b.most.Load() {
		b.most.Store(n)
	}
	defer b.inside.Add(-1)
	b.entered <- struct{}{}
	<-ctx.Done()
	b.left <- ctx.Err()
	return 0, fault.New(fault.KindOf(ctx.Err()), "%w", ctx.Err())
}

func openBlocking(t *testing.T) (*door, *blocking) {
	t.Helper()
	b := &blocking{entered: make(chan struct{}, 2*bundle.MaxCalls), left: make(chan error, 2*bundle.MaxCalls)}
	return open(t, func(c *grpcapi.Config) {
		b.Backend = c.Backend
		c.Backend = b
	}), b
}

// A client that breaks the rules of a stream loses the stream, and its calls end.
func TestBundlesThatBreakTheRules(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		calls func() []*pb.BundledCall
		code  codes.Code
	}{
		"two calls with one id": {func() []*pb.BundledCall {
			return []*pb.BundledCall{{Id: 1, Method: "Count"}, {Id: 1, Method: "Count"}}
		}, codes.InvalidArgument},
		"too many calls": {func() []*pb.BundledCall { return counts(0, bundle.MaxCalls+1) }, codes.ResourceExhausted},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d, engine := openBlocking(t)
			st := bundleOf(t, d)
			if err := st.Send(&pb.CallBundle{Calls: c.calls()}); err != nil {
				t.Fatal(err)
			}

			for {
				if _, err := st.Recv(); err != nil {
					if status.Code(err) != c.code {
						t.Errorf("the stream ended with %v, want %s", err, c.code)
					}
					break
				}
			}
			for range len(engine.entered) {
				<-engine.left
			}
		})
	}
}

// counts returns n calls of the method Count.
func counts(from, n int) (all []*pb.BundledCall) {
	for i := range n {
		all = append(all, &pb.BundledCall{Id: uint64(from + i), Method: "Count"})
	}
	return all
}

// If a client makes calls and gives them up immediately, the number of calls that the server works
// on stays bounded. A call that the same bundle gives up ends too.
func TestCallsThatAreGivenUpAtOnce(t *testing.T) {
	t.Parallel()
	d, engine := openBlocking(t)
	st := bundleOf(t, d)
	const rounds = 5
	for r := range rounds {
		calls := counts(r*bundle.MaxCalls, bundle.MaxCalls)
		ids := make([]uint64, len(calls))
		for i, c := range calls {
			ids[i] = c.GetId()
		}
		if err := st.Send(&pb.CallBundle{Calls: calls, GivenUp: ids}); err != nil {
			t.Fatal(err)
		}
	}

	for range rounds * bundle.MaxCalls {
		<-engine.entered
		<-engine.left
	}
	if most := engine.most.Load(); most > 2*bundle.MaxCalls {
		t.Errorf("the server worked on %d calls at a time", most)
	}
}

// A call that the client gives up ends. Another call in the same bundle continues.
func TestCallOfABundleIsGivenUp(t *testing.T) {
	t.Parallel()
	d, engine := openBlocking(t)
	st := bundleOf(t, d)
	if err := st.Send(&pb.CallBundle{Calls: []*pb.BundledCall{{Id: 1, Method: "Count"}}}); err != nil {
		t.Fatal(err)
	}
	<-engine.entered
	if err := st.Send(&pb.CallBundle{GivenUp: []uint64{1, 7}}); err != nil {
		t.Fatal(err)
	}
	<-engine.left
	if a := answersTo(t, st, &pb.BundledCall{Id: 2, Method: "ListWorkers"})[2]; codeOf(t, a) != codes.OK {
		t.Errorf("the next call: %v", a)
	}
}

// A connection has a bounded number of streams with bundles.
func TestBundlesOfOneConnection(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	for range 4 {
		bundleOf(t, d)
	}
	st, err := d.client.Bundle(d.ctx)
	if err == nil {
		_, err = st.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a fifth stream: %v", err)
	}
}

// A reply that is too large for the client fails its call, not the stream.
func TestReplyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	st := bundleOf(t, d)
	if err := st.Send(&pb.CallBundle{MaxReply: 1}); err != nil {
		t.Fatal(err)
	}
	all := answersTo(t, st, &pb.BundledCall{Id: 1, Method: "Allowance"}, &pb.BundledCall{Id: 2, Method: "Server"}, &pb.BundledCall{Id: 3, Method: "ListWorkers"})
	if got := codeOf(t, all[2]); got != codes.ResourceExhausted {
		t.Errorf("a large reply: %s", got)
	}
	if got := codeOf(t, all[3]); got != codes.OK {
		t.Errorf("an empty reply: %s", got)
	}
}

// switched authenticates callers until it is switched off.
type switched struct {
	to    grpcapi.Authenticator
	off   chan struct{}
	valid context.Context //nolint:containedctx // ends when the credential changes
}

func (s switched) Authenticate(ctx context.Context, header map[string][]string) (authn.Identity, error) {
	select {
	case <-s.off:
		return authn.Identity{}, fault.New(fault.Unauthenticated, "the key is revoked")
	default:
		who, err := s.to.Authenticate(ctx, header)
		who.Admin, who.Roles, who.Valid = false, header["roles"], s.valid
		return who, err
	}
}

// onlyReads lets callers count, and nothing else.
type onlyReads struct{}

func (onlyReads) Authorize(_ *authn.Identity, action authz.Action) error {
	if action != "execution:read" && action != "server:describe" {
		return fault.New(fault.Denied, "%s is not allowed", action)
	}
	return nil
}

// The server checks for each call of a bundle whether the caller may make it, and for each bundle
// whether the credential is still valid.
func TestBundlesAreAuthorized(t *testing.T) {
	t.Parallel()
	off := make(chan struct{})
	valid, end := context.WithCancel(t.Context())
	d := open(t, func(c *grpcapi.Config) {
		c.Authenticator, c.Authorizer = switched{c.Authenticator, off, valid}, onlyReads{}
	})
	if _, err := d.client.Bundle(metadata.NewOutgoingContext(t.Context(), metadata.MD{})); err == nil {
		st, _ := d.client.Bundle(t.Context())
		if _, err = st.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a stream without a credential: %v", err)
		}
	}

	st := bundleOf(t, d)
	all := answersTo(t, st, &pb.BundledCall{Id: 1, Method: "Count"}, &pb.BundledCall{Id: 2, Method: "Start"}, &pb.BundledCall{Id: 3, Method: "SetLimit"})
	for id, want := range map[uint64]codes.Code{1: codes.OK, 2: codes.PermissionDenied, 3: codes.PermissionDenied} {
		if got := codeOf(t, all[id]); got != want {
			t.Errorf("call %d: %s, want %s", id, got, want)
		}
	}

	end() // the record of the key has changed, for example its expiry, but the key is still valid
	if a := answersTo(t, st, &pb.BundledCall{Id: 4, Method: "Count"})[4]; codeOf(t, a) != codes.OK {
		t.Errorf("after the key has changed: %v", a)
	}
	close(off)
	if a := answersTo(t, st, &pb.BundledCall{Id: 5, Method: "Count"})[5]; codeOf(t, a) != codes.Unauthenticated {
		t.Errorf("after the key was revoked: %v", a)
	}
	if _, err := st.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream of a key that was revoked: %v", err)
	}
}
