package tenanttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/tenanttest"
	"github.com/perdure/perdure/internal/wire"
)

const (
	adminKey = "0123456789abcdef0123456789abcdef"
	// leastProbes is how many probes the test must make at least.
	leastProbes = 2000
)

// prober makes calls over a connection, in one tenant with ids of another tenant.
type prober struct {
	t            *testing.T
	conn         *grpc.ClientConn
	ctx          context.Context
	mine, theirs *tenanttest.IDs
	other        string // tenant
	turn         int    // chooses values in turn
	probes       int
}

// A caller of one tenant sets every text and every bytes field of every request to ids of another
// tenant, in the client service and in the items of a worker. The caller reaches nothing of the
// other tenant. The fields come from the descriptors of the protocol, so a new method or field is
// probed as well.
func TestProbesOverTheWire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, err := node.Open(t.Context(), node.Config{URL: "memory:", Shards: 4})
		if err != nil {
			t.Fatal(err)
		}
		b := n.Backend()
		theirs, mine := tenanttest.Fill(t, b, "acme"), tenanttest.Fill(t, b, "globex")
		p := &prober{t: t, mine: mine, theirs: theirs, other: "acme"}
		stop := p.connect(b, "globex")
		time.Sleep(time.Minute) // both tenants are at rest
		before := tenanttest.Snapshot(t, b, "acme", theirs)
		if !strings.Contains(before, theirs.Secret) {
			t.Fatalf("the snapshot shows no secret:\n%s", before)
		}

		methods := pb.File_perdure_v1_client_proto.Services().ByName("ClientService").Methods()
		for i := range methods.Len() {
			p.probeMethod(methods.Get(i))
		}
		items := (&pb.WorkerItem{}).ProtoReflect().Descriptor().Oneofs().ByName("item").Fields()
		for i := range items.Len() {
			p.probeItem(items.Get(i))
		}

		if p.probes < leastProbes {
			t.Errorf("%d probes, want %d", p.probes, leastProbes)
		}
		t.Logf("%d probes of %d methods and %d items", p.probes, methods.Len(), items.Len())
		time.Sleep(time.Minute)
		if after := tenanttest.Snapshot(t, b, "acme", theirs); after != before {
			t.Errorf("the probes have changed the other tenant:\n%s\nwas\n%s", after, before)
		}
		stop()
		t.Cleanup(func() { // after the apps of the tenants
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

// connect starts a server and connects to it.
func (p *prober) connect(b api.Backend, tenant string) (stop func()) {
	keys, err := authn.NewAdminKey(adminKey, tenant)
	if err != nil {
		p.t.Fatal(err)
	}
	listener, server := bufconn.Listen(1<<18), grpcapi.New(grpcapi.Config{Backend: b, Authenticator: keys})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	p.conn, err = grpc.NewClient("passthrough:server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		p.t.Fatal(err)
	}

	p.ctx = metadata.AppendToOutgoingContext(p.t.Context(), "authorization", "Bearer "+adminKey)
	return func() {
		_ = p.conn.Close()
		server.Shutdown(p.t.Context())
		<-done
	}
}

// texts returns all texts that name something of a tenant.
func texts(of *tenanttest.IDs, tenant string) []string {
	return []string{
		of.Key, of.Workflow, of.Closed, of.Entity, of.ListCursor, model.TaskPrefix + of.Activity, of.Limit, of.Queue, of.Breaker, of.Activity, tenant + "/" + of.Key,
		of.Run.String(), "nightly", "perdure.schedule", "same", of.Dead.String(),
	}
}

// raws returns all byte strings that name something of a tenant. Some are encoded messages, which
// contain the tenant.
func raws(of *tenanttest.IDs, tenant string) [][]byte {
	to := model.Address{Tenant: tenant, Type: of.Workflow, Key: of.Key}
	signal := model.Message{Kind: model.MessageSignal, To: to, Name: "go", Input: model.Payload{Data: []byte(`"x"`)}, RequestID: "probe"}
	terminate := model.Message{Kind: model.MessageTerminate, To: to}
	return [][]byte{
		of.Run[:], model.AppendMessage(nil, &signal), of.ClosedRun[:], of.TaskRun[:], model.AppendMessage(nil, &terminate), of.Dead.Run[:],
	}
}

// pick returns the values in turn, one per call.
func pick[T any](p *prober, values []T) T {
	p.turn++
	return values[p.turn%len(values)]
}

// value returns an id for a field. It returns an invalid value if a field of this type cannot
// contain an id.
func (p *prober) value(f protoreflect.FieldDescriptor, of *tenanttest.IDs, tenant string) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		switch f.Name() {
		case "key", "key_prefix":
			return protoreflect.ValueOfString(of.Key)
		case "type":
			return protoreflect.ValueOfString(pick(p, []string{of.Workflow, of.Entity, model.TaskPrefix + of.Activity}))
		}
		return protoreflect.ValueOfString(pick(p, texts(of, tenant)))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(pick(p, raws(of, tenant)))
	case protoreflect.Int64Kind:
		if f.Name() == "token" {
			return protoreflect.ValueOfInt64(of.Epoch)
		}
	case protoreflect.Uint32Kind:
		if f.Name() == "shard" {
			return protoreflect.ValueOfUint32(uint32(of.Dead.Shard))
		}
	case protoreflect.EnumKind:
		if f.Enum().Name() == "MailboxVerb" {
			return protoreflect.ValueOfEnum(pick(p, []protoreflect.EnumNumber{1, 2, 4}))
		}
	default: // such a field names nothing
	}

	return protoreflect.Value{}
}

// rounds is how many different ids the test puts into each field while the other fields are empty.
// It puts as many into each field while the other fields have ids of the caller.
const rounds = 4

// depth is the maximum depth of nested messages whose fields the test fills and probes.
const depth = 4

// fill fills a message with the ids of a tenant.
func (p *prober) fill(m protoreflect.Message, left int, of *tenanttest.IDs, tenant string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.Message() != nil && (left == 0 || f.ContainingOneof() != nil):
		case f.Message() != nil && f.IsList():
			p.fill(m.Mutable(f).List().AppendMutable().Message(), left-1, of, tenant)
		case f.Message() != nil:
			p.fill(m.Mutable(f).Message(), left-1, of, tenant)
		default:
			set(m, f, p.value(f, of, tenant))
		}
	}
}

func set(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case !v.IsValid():
	case f.IsList():
		m.Mutable(f).List().Append(v)
	default:
		m.Set(f, v)
	}
}

// fields calls do for every field of a message, and of its nested messages, that may contain an id.
// The second argument of do is a function that returns the nested message that contains the field.
func fields(d protoreflect.MessageDescriptor, left int, do func(f protoreflect.FieldDescriptor, in func(protoreflect.Message) protoreflect.Message)) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		switch {
		case f.Message() != nil && left == 0:
		case f.Message() != nil:
			fields(f.Message(), left-1, func(leaf protoreflect.FieldDescriptor, in func(protoreflect.Message) protoreflect.Message) {
				do(leaf, func(m protoreflect.Message) protoreflect.Message {
					if f.IsList() {
						l := m.Mutable(f).List()
						if l.Len() == 0 {
							l.AppendMutable()
						}
						return in(l.Get(0).Message())
					}
					return in(m.Mutable(f).Message())
				})
			})
		case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind || f.Name() == "token" || f.Name() == "shard":
			do(f, func(m protoreflect.Message) protoreflect.Message { return m })
		}
	}
}

// requests calls do with every probe of a message. There are three kinds of probes. One field has
// an id of the other tenant, and the other fields are empty. One field has an id of the other
// tenant, and the other fields have ids of the caller. All fields have ids of the other tenant.
func (p *prober) requests(d protoreflect.MessageDescriptor, do func(proto.Message, string)) {
	all := dynamicpb.NewMessage(d)
	p.fill(all, depth, p.theirs, p.other)
	do(all, "all fields")

	fields(d, depth, func(f protoreflect.FieldDescriptor, in func(protoreflect.Message) protoreflect.Message) {
		for n := range 2 * rounds {
			own := n%2 == 1
			m := dynamicpb.NewMessage(d)
			if own {
				p.fill(m, depth, p.mine, "globex")
			}
			at := in(m)
			at.Clear(f)
			set(at, f, p.value(f, p.theirs, p.other))
			do(m, string(f.FullName()))
		}
	})
}

// probeMethod probes every field of a method of the client service.
func (p *prober) probeMethod(m protoreflect.MethodDescriptor) {
	p.t.Helper()
	probed := p.probes
	p.requests(m.Input(), func(request proto.Message, what string) {
		p.probes++
		answer, err := p.call(m, request)
		p.judge(string(m.Name())+" with "+what, request, answer, err)
	})
	if p.probes == probed {
		p.t.Errorf("%s has no probe", m.Name())
	}
}

// call calls a method and returns the text of its answers.
func (p *prober) call(m protoreflect.MethodDescriptor, in proto.Message) (answer string, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, 2*time.Second)
	defer cancel()
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	stream, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, name)
	if err != nil {
		return "", err
	}

	if err := errors.Join(stream.SendMsg(in), stream.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}

	for {
		out := dynamicpb.NewMessage(m.Output())
		if err := stream.RecvMsg(out); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return answer, err
		}
		raw, _ := proto.Marshal(out)
		answer += string(raw)
	}
}

// judge checks that an answer shows nothing of the other tenant.
func (p *prober) judge(what string, request proto.Message, answer string, err error) {
	p.t.Helper()
	switch status.Code(err) {
	case codes.Internal, codes.Unknown, codes.DataLoss, codes.Unimplemented:
		if !strings.Contains(err.Error(), "the client has not saved the rows") {
			p.t.Errorf("%s: %v", what, err)
		}
	default:
	}

	text := answer + fmt.Sprint(err) + fmt.Sprint(status.Convert(err).Details())
	asked, _ := proto.Marshal(request)
	if strings.Contains(text, p.theirs.Secret) {
		p.t.Errorf("%s shows a value of the other tenant: %q", what, text)
	}

	for _, run := range []model.RunID{p.theirs.Run, p.theirs.ClosedRun, p.theirs.TaskRun} {
		for _, id := range []string{string(run[:]), run.String()} {
			if strings.Contains(text, id) && !strings.Contains(string(asked), string(run[:])) && !strings.Contains(string(asked), run.String()) {
				p.t.Errorf("%s shows a run of the other tenant: %q", what, text)
			}
		}
	}
}

// probeItem probes every field of an item that a worker sends. The worker has joined in all roles.
func (p *prober) probeItem(item protoreflect.FieldDescriptor) {
	p.t.Helper()
	p.requests(item.Message(), func(m proto.Message, what string) {
		p.probes++
		raw, err := proto.Marshal(m)
		if err != nil {
			return // an id is a text that is not UTF-8
		}
		it := (&pb.WorkerItem{}).ProtoReflect()
		if err := proto.Unmarshal(raw, it.Mutable(item).Message().Interface()); err != nil {
			p.t.Fatal(err)
		}
		answer, err := p.work(it.Interface().(*pb.WorkerItem))
		p.judge("item with "+what, m, answer, err)
	})
}

// work opens the stream of a worker, joins in all roles, and sends an item. It returns the text of
// everything that the server sends before it ends the stream.
func (p *prober) work(item *pb.WorkerItem) (answer string, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, 2*time.Second)
	defer cancel()
	st, err := pb.NewWorkerServiceClient(p.conn).Work(ctx)
	if err != nil {
		return "", err
	}
	hello := &pb.Hello{Protocol: wire.Protocol, LastEventKind: uint32(model.LastEventKind), LastMessageKind: uint32(model.LastMessageKind)}

	joins := []*pb.WorkerItem{
		{Item: &pb.WorkerItem_Join{Join: &pb.Join{Role: pb.Role_ROLE_WORKFLOWS, Kinds: []string{"probe"}}}},
		{Item: &pb.WorkerItem_Join{Join: &pb.Join{Role: pb.Role_ROLE_TASKS, Kinds: []string{"probe"}, Queues: []string{"probe"}, Slots: 1}}},
		{Item: &pb.WorkerItem_Join{Join: &pb.Join{Role: pb.Role_ROLE_ENTITIES, Entities: []*pb.EntityType{{Type: "entity:probe"}}}}},
		item,
		{Item: &pb.WorkerItem_Goodbye{Goodbye: &pb.Goodbye{}}},
	}
	if err := errors.Join(st.Send(&pb.WorkerFrame{Hello: hello}), st.Send(&pb.WorkerFrame{Number: 1, Items: joins}), st.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}

	for {
		m, err := st.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return answer, err
		}
		raw, _ := proto.Marshal(m)
		answer += string(raw)
	}
}
