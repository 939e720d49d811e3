package grpcapi_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// raw is the stream of a worker, frame by frame.
type raw struct {
	t  *testing.T
	st grpc.BidiStreamingClient[pb.WorkerFrame, pb.ServerFrame]
}

// work opens the stream of a worker.
func (d *door) work(t *testing.T, ctx context.Context) raw {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancel)
	st, err := pb.NewWorkerServiceClient(d.conn).Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return raw{t, st}
}

// hello is the first frame of a worker that resumes a session, or starts one.
func hello(session string) *pb.WorkerFrame {
	return &pb.WorkerFrame{Hello: &pb.Hello{
		Protocol: wire.Protocol, Session: session, LastEventKind: uint32(model.LastEventKind), LastMessageKind: uint32(model.LastMessageKind),
	}}
}

// join is an item that joins as a worker of workflows.
func join() *pb.WorkerItem {
	return &pb.WorkerItem{Item: &pb.WorkerItem_Join{Join: &pb.Join{Role: pb.Role_ROLE_WORKFLOWS, Kinds: []string{"flow"}}}}
}

// frame is a frame with items.
func frame(number uint64, items ...*pb.WorkerItem) *pb.WorkerFrame {
	return &pb.WorkerFrame{Number: number, Items: items}
}

// send sends frames. If the server has already ended the stream, Recv returns the reason.
func (r raw) send(frames ...*pb.WorkerFrame) {
	r.t.Helper()
	for _, f := range frames {
		if err := r.st.Send(f); err != nil && !errors.Is(err, io.EOF) {
			r.t.Fatal(err)
		}
	}
}

// welcome starts a session, or resumes one, and returns the answer of the server.
func (r raw) welcome(session string) *pb.Welcome {
	r.t.Helper()
	r.send(hello(session))
	m, err := r.st.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	return m.GetWelcome()
}

// end reads until the stream ends, and returns how many times the worker has joined.
func (r raw) end() (joined int, err error) {
	for {
		m, err := r.st.Recv()
		if err != nil {
			return joined, err
		}
		for _, it := range m.GetItems() {
			if it.GetJoined() != nil {
				joined++
			}
		}
	}
}

// A worker that breaks the protocol loses its stream and its session with a typed error. The server
// and other workers continue.
func TestHostileWorkers(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *grpcapi.Config) { c.MaxMessage = 1 << 16 })
	other := d.work(t, d.ctx)
	session := other.welcome("").GetSession()
	other.send(frame(1, join()))

	old := hello("")
	old.Hello.LastEventKind--
	newer := hello("")
	newer.Hello.Protocol++
	many, long := hello(""), hello("")
	many.Hello.Earlier = make([]string, 17)
	long.Hello.Earlier = []string{strings.Repeat("s", 65)}
	full := hello("")
	full.Items = []*pb.WorkerItem{join()}
	turn := &pb.WorkerItem{Item: &pb.WorkerItem_Turn{Turn: &pb.Turn{Run: make([]byte, 16), Close: &pb.Close{Status: 99}}}}
	pass := &pb.WorkerItem{Item: &pb.WorkerItem_Pass{Pass: &pb.Pass{Ref: &pb.TaskRef{Run: make([]byte, 16)}}}}
	passed := &pb.WorkerItem{Item: &pb.WorkerItem_Passed{Passed: &pb.Passed{How: 99, Ref: &pb.TaskRef{Run: make([]byte, 16)}}}}
	leave := &pb.WorkerItem{Item: &pb.WorkerItem_Leave{Leave: &pb.Leave{Role: pb.Role_ROLE_WORKFLOWS}}}
	role := &pb.WorkerItem{Item: &pb.WorkerItem_Join{Join: &pb.Join{Role: 77}}}
	report := &pb.WorkerItem{Item: &pb.WorkerItem_TaskReport{TaskReport: &pb.TaskReport{}}}
	ack := frame(1, join())
	ack.Acknowledged = 1 << 40
	huge := frame(1, &pb.WorkerItem{Item: &pb.WorkerItem_Turn{Turn: &pb.Turn{Waits: make([]byte, 1<<17)}}})

	for what, c := range map[string]struct {
		frames []*pb.WorkerFrame
		want   codes.Code
	}{
		"no hello":                     {[]*pb.WorkerFrame{frame(1, join())}, codes.InvalidArgument},
		"an empty first frame":         {[]*pb.WorkerFrame{{}}, codes.InvalidArgument},
		"a hello with items":           {[]*pb.WorkerFrame{full}, codes.InvalidArgument},
		"another version":              {[]*pb.WorkerFrame{newer}, codes.InvalidArgument},
		"an old worker":                {[]*pb.WorkerFrame{old}, codes.InvalidArgument},
		"many earlier sessions":        {[]*pb.WorkerFrame{many}, codes.InvalidArgument},
		"a long name of a session":     {[]*pb.WorkerFrame{long}, codes.InvalidArgument},
		"a second hello":               {[]*pb.WorkerFrame{hello(""), hello("")}, codes.InvalidArgument},
		"a frame that is left out":     {[]*pb.WorkerFrame{hello(""), frame(2, join())}, codes.InvalidArgument},
		"frames in the wrong order":    {[]*pb.WorkerFrame{hello(""), frame(1, join()), frame(3), frame(2)}, codes.InvalidArgument},
		"items without a number":       {[]*pb.WorkerFrame{hello(""), frame(0, join())}, codes.InvalidArgument},
		"acknowledges what never came": {[]*pb.WorkerFrame{hello(""), ack}, codes.InvalidArgument},
		"an empty item":                {[]*pb.WorkerFrame{hello(""), frame(1, &pb.WorkerItem{})}, codes.InvalidArgument},
		"a turn before the join":       {[]*pb.WorkerFrame{hello(""), frame(1, turn)}, codes.InvalidArgument},
		"an unknown end of a run":      {[]*pb.WorkerFrame{hello(""), frame(1, join(), turn)}, codes.InvalidArgument},
		"an attempt without a spec":    {[]*pb.WorkerFrame{hello(""), frame(1, join(), pass)}, codes.InvalidArgument},
		"an unknown end of an attempt": {[]*pb.WorkerFrame{hello(""), frame(1, join(), passed)}, codes.InvalidArgument},
		"a report in another role":     {[]*pb.WorkerFrame{hello(""), frame(1, join(), report)}, codes.InvalidArgument},
		"an unknown role":              {[]*pb.WorkerFrame{hello(""), frame(1, role)}, codes.InvalidArgument},
		"a second join":                {[]*pb.WorkerFrame{hello(""), frame(1, join()), frame(2, join())}, codes.InvalidArgument},
		"a leave without a join":       {[]*pb.WorkerFrame{hello(""), frame(1, leave)}, codes.InvalidArgument},
		"a second leave":               {[]*pb.WorkerFrame{hello(""), frame(1, join(), leave, leave)}, codes.InvalidArgument},
		"a huge frame":                 {[]*pb.WorkerFrame{hello(""), huge}, codes.ResourceExhausted},
	} {
		r := d.work(t, d.ctx)
		r.send(c.frames...)
		if _, err := r.end(); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}

	// The other worker is not affected, and its session continues.
	again := d.work(t, d.ctx)
	if w := again.welcome(session); !w.GetResumed() || w.GetReceived() != 1 {
		t.Errorf("the session of another worker: %v", w)
	}
	if strings.Contains(d.log.String(), "panicked") || strings.Contains(d.log.String(), "level=ERROR") {
		t.Errorf("the log is\n%s", d.log)
	}
}

// The server takes a frame that comes twice only once. A worker that names an unknown session, or a
// session of another tenant, gets a new session, and the named session does not change.
func TestSessionsOfWorkers(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	first := d.work(t, d.ctx)
	w := first.welcome("")
	first.send(frame(1, join()), frame(1, join()), frame(1, join()))
	if err := first.st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if joined, err := first.end(); joined > 1 || !errors.Is(err, io.EOF) {
		t.Errorf("joined %d times, %v", joined, err)
	}

	foreign := metadata.AppendToOutgoingContext(d.ctx, "perdure-tenant", "acme")
	for what, ctx := range map[string]context.Context{"session_UNKNOWN": d.ctx, w.GetSession(): foreign} {
		if got := d.work(t, ctx).welcome(what); got.GetResumed() || got.GetSession() == w.GetSession() || got.GetReceived() != 0 {
			t.Errorf("a session that is not its own: %v", got)
		}
	}
	last := d.work(t, d.ctx)
	if got := last.welcome(w.GetSession()); !got.GetResumed() || got.GetReceived() != 1 || got.GetTenant() != "default" {
		t.Errorf("the own session: %v", got)
	}
	if err := last.st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if joined, err := last.end(); joined != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("joined %d times, %v", joined, err)
	}
}

// The server closes a connection that starts to speak gRPC and then sends nothing. The test stops
// at different points of the handshake, in virtual time.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	const preface, settings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	// A HEADERS frame of stream 1 that announces a continuation. It has one field, and no
	// continuation follows.
	const headers = "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x83"
	for what, said := range map[string]string{
		"nothing": "", "half of the preface": preface[:9], "the preface": preface, "settings": preface + settings, "half of the headers": preface + settings + headers,
		"half of a frame": preface + settings + "\x00\x40\x00\x00",
	} {
		synctest.Test(t, func(t *testing.T) {
			l, server := bufconn.Listen(1<<16), grpcapi.New(grpcapi.Config{Authenticator: authn.Open{Tenant: "default"}})
			done := make(chan error, 1)
			go func() { done <- server.Serve(l) }()
			conn, err := l.DialContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			if _, err := io.WriteString(conn, said); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			_, _ = io.Copy(io.Discard, conn) // until the server closes the connection
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("%s: closed after %s", what, took)
			}
			_ = conn.Close()
			server.Shutdown(t.Context())
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
