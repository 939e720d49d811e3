package grpcapi

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/bundle"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/wire"
)

const (
	// A bundle is a message with several calls of one client. maxBundles is how many streams with
	// bundles one connection may have. A client needs one stream, and for a moment a second one
	// when it replaces the first.
	maxBundles = 4
	// maxServed is how many calls of a stream the server works on. It is more than bundle.MaxCalls,
	// because calls that the client has given up may not have ended yet.
	maxServed = 2 * bundle.MaxCalls
	// maxGivenUp is how many calls one bundle may give up. It is more than bundle.MaxCalls, because
	// the server may have answered some of them in the meantime.
	maxGivenUp = 4 * bundle.MaxCalls
	// closingTime is how long a server that shuts down waits for the client to end its side of a
	// stream, after the last answer.
	closingTime = 2 * time.Second
	// maxIdleServers is how many goroutines of a stream wait for further calls. Reusing them is
	// cheap, because the stack of a goroutine that has served a call already has the right size.
	maxIdleServers = 64
)

// bundleStream is the type of the stream that gRPC gives to Bundle.
type bundleStream = grpc.BidiStreamingServer[pb.CallBundle, pb.AnswerBundle]

// bundles serves the streams that carry many calls.
type bundles struct {
	server  *Server
	service *client
	methods map[string]grpc.MethodHandler // the methods of ClientService, by name

	mu   sync.Mutex
	open map[string]int // the streams of each connection, by its address
}

func newBundles(s *Server, service *client) *bundles {
	b := &bundles{server: s, service: service, methods: map[string]grpc.MethodHandler{}, open: map[string]int{}}
	to := counted{server: s}
	for _, m := range pb.ClientService_ServiceDesc.Methods {
		b.methods[m.MethodName] = to.handler(clientMethod(m.MethodName), m.Handler)
	}
	return b
}

// clientMethod returns the full name of a method of ClientService.
func clientMethod(name string) string {
	return "/" + pb.ClientService_ServiceDesc.ServiceName + "/" + name
}

// bundleMethod is the full name of the method that serves bundles.
const bundleMethod = "/perdure.v1.ClientService/Bundle"

// Bundle serves calls that come in bundles.
func (c *client) Bundle(stream bundleStream) error { return c.bundles.serve(stream) }

// serve serves a stream until the client ends it, or the server shuts down.
func (b *bundles) serve(stream bundleStream) error {
	leave, err := b.enter(stream.Context())
	if err != nil {
		return err
	}
	defer leave()
	if b.server.drained.Err() != nil {
		return errShutdown
	}
	if err := stream.Send(&pb.AnswerBundle{Most: bundle.MaxCalls}); err != nil {
		return err
	}

	header, _ := metadata.FromIncomingContext(stream.Context())
	s := &bundledCalls{
		bundles: b, stream: stream, header: header, maxReply: b.server.config.MaxReply - 2*answerRoom,
		calls: map[uint64]*openCall{}, slots: make(chan struct{}, maxServed), jobs: make(chan bundledCall), over: make(chan struct{}),
		answers: bundle.NewSender[*pb.BundledAnswer](b.server.config.MaxReply),
	}
	return s.run()
}

// enter counts a stream. It refuses the stream if the address of the client already has too many
// streams. It does not count clients of a Unix socket, because they have no addresses of their own.
func (b *bundles) enter(ctx context.Context) (leave func(), err error) {
	from := ""
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil && p.Addr.Network() != "unix" {
		from = p.Addr.String()
	}
	if from == "" {
		return func() {}, nil
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[from] >= maxBundles {
		return nil, fault.New(fault.Exhausted, "the connection has %d streams with bundles of calls, which is the most", maxBundles)
	}
	b.open[from]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.open[from]--; b.open[from] == 0 {
			delete(b.open, from)
		}
	}, nil
}

// bundledCalls are the calls of one stream.
type bundledCalls struct {
	*bundles

	stream   bundleStream
	header   metadata.MD // the header of the stream, with the credential of the caller
	maxReply int
	answers  *bundle.Sender[*pb.BundledAnswer]

	slots chan struct{}    // one for each call that a goroutine serves
	jobs  chan bundledCall // calls for goroutines that have nothing to do
	idle  atomic.Int32
	over  chan struct{} // closed after the last call

	mu       sync.Mutex
	draining bool
	calls    map[uint64]*openCall // calls without an answer, by id
	open     sync.WaitGroup       // calls that goroutines serve
}

// openCall is a call without an answer.
type openCall struct{ cancel context.CancelFunc }

// bundledCall is a call that a goroutine serves.
type bundledCall struct {
	ctx    context.Context //nolint:containedctx // the call waits until a goroutine takes it
	handle grpc.MethodHandler
	call   *pb.BundledCall
	entry  *openCall
}

// run takes calls and sends answers. It returns when all calls are answered, or when the answers
// can no longer reach the client.
func (s *bundledCalls) run() error {
	quiet, stop := context.WithCancel(context.Background())
	defer stop()
	sent, received := make(chan error, 1), make(chan error, 1)
	go func() { sent <- s.answers.Run(quiet, s.send) }()
	go func() { received <- s.receive() }()

	var end error
	select {
	case end = <-received:
	case end = <-sent:
		sent <- end
	case <-s.server.drained.Done():
		end = s.shutDown(received)
	}

	if end != nil && !errors.Is(end, errShutdown) {
		s.giveUpAll()
	}
	s.open.Wait()
	close(s.over)
	stop()
	if err := <-sent; end == nil {
		end = err
	}
	return end
}

// shutDown refuses further calls and asks the client to end its side of the stream. It waits until
// the client has done so, so that the client gets an answer to every call that is on its way. After
// the last answer, it waits for at most closingTime.
func (s *bundledCalls) shutDown(received <-chan error) error {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.answers.Post(nil, answerRoom) // says that the server shuts down

	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.open.Wait()
	}()
	select {
	case err := <-received:
		return err
	case <-answered:
	}
	select {
	case err := <-received:
		return err
	case <-time.After(closingTime):
		return errShutdown
	}
}

// send sends one bundle of answers. A nil answer means that the server shuts down.
func (s *bundledCalls) send(answers []*pb.BundledAnswer) error {
	m := &pb.AnswerBundle{Answers: answers}
	if at := slices.Index(answers, nil); at >= 0 {
		m.Answers, m.Closing = slices.Delete(answers, at, at+1), true
	}
	return s.stream.Send(m)
}

// receive takes calls until the client ends its side of the stream, which is no error.
func (s *bundledCalls) receive() error {
	for first := true; ; first = false {
		m, err := s.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if most := m.GetMaxReply(); first && most > 0 {
			s.maxReply = int(min(int64(s.maxReply), most))
		}
		if refused, err := s.take(m); refused || err != nil {
			return err
		}
	}
}

// take starts the calls of a bundle. It checks for each bundle whether the credential of the caller
// is still valid, as the server does for a call outside bundles. refused is true if the credential
// is no longer valid. An error means that the client broke the protocol, and ends the stream.
func (s *bundledCalls) take(m *pb.CallBundle) (refused bool, err error) {
	if len(m.GetCalls()) > bundle.MaxCalls || len(m.GetGivenUp()) > maxGivenUp {
		return false, fault.New(fault.Exhausted, "a bundle has %d calls and gives up %d, which is too many", len(m.GetCalls()), len(m.GetGivenUp()))
	}
	s.giveUp(m.GetGivenUp())
	// Do this after the calls have started, because a bundle may give up one of its own calls.
	defer s.giveUp(m.GetGivenUp())
	if len(m.GetCalls()) == 0 {
		return false, nil
	}

	ctx, refusal := s.server.authenticate(s.stream.Context(), s.header)
	if refusal != nil {
		ctx = s.stream.Context()
	}
	for _, call := range m.GetCalls() {
		// While a client does not read its answers, take no further calls from it.
		if err := s.answers.WaitForRoom(s.stream.Context()); err != nil {
			return false, err
		}
		handle := s.methods[call.GetMethod()]
		err := refusal
		switch {
		case err != nil:
		case handle == nil:
			err = status.Errorf(codes.Unimplemented, "ClientService has no method %.80q that a bundle may carry", call.GetMethod())
		default:
			err = s.server.authorize(ctx, clientMethod(call.GetMethod()))
		}
		if err != nil {
			s.refuse(ctx, call, err)
			continue
		}
		if err := s.begin(bundledCall{ctx, handle, call, nil}); err != nil {
			return false, err
		}
	}
	return refusal != nil, nil
}

// refuse answers a call with an error instead of making it.
func (s *bundledCalls) refuse(ctx context.Context, call *pb.BundledCall, err error) {
	err = toStatus(err)
	door, method := doorOf(clientMethod(call.GetMethod()))
	s.server.config.Journal.Refuse(ctx, door, method, outcomeOf(ctx, err))
	s.post(&pb.BundledAnswer{Id: call.GetId(), Status: encodedStatus(err)})
}

// begin gives a call to a goroutine. An error means that the client broke the protocol, and ends
// the stream.
func (s *bundledCalls) begin(c bundledCall) error {
	select {
	case s.slots <- struct{}{}:
	case <-s.stream.Context().Done():
		return context.Cause(s.stream.Context())
	}

	ctx, cancel := context.WithCancel(c.ctx)
	c.ctx, c.entry = ctx, &openCall{cancel}
	if begun, err := s.register(c.call.GetId(), c.entry); !begun {
		cancel()
		<-s.slots
		return err
	}
	select {
	case s.jobs <- c:
	default:
		go s.serveCalls(c)
	}
	return nil
}

// register notes a call. begins is false if the call must not start, because the server is shutting
// down or the call breaks the protocol.
func (s *bundledCalls) register(id uint64, entry *openCall) (begins bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch _, used := s.calls[id]; {
	case used:
		return false, fault.New(fault.Invalid, "two calls of a stream have the id %d", id)
	case len(s.calls) >= bundle.MaxCalls:
		return false, fault.New(fault.Exhausted, "the stream has more than %d calls without an answer", bundle.MaxCalls)
	case s.draining:
		s.post(&pb.BundledAnswer{Id: id, Untouched: true})
		return false, nil
	}
	s.calls[id] = entry
	s.open.Add(1)
	return true, nil
}

// serveCalls serves the call c, and then further calls until the stream is over or enough other
// goroutines are idle.
func (s *bundledCalls) serveCalls(c bundledCall) {
	for {
		s.serveCall(c)
		if s.idle.Add(1) > maxIdleServers {
			s.idle.Add(-1)
			return
		}
		select {
		case c = <-s.jobs:
			s.idle.Add(-1)
		case <-s.over:
			return
		}
	}
}

// serveCall makes one call and posts its answer, unless the client has given the call up.
func (s *bundledCalls) serveCall(c bundledCall) {
	defer s.open.Done()
	defer func() { <-s.slots }()
	id, era := c.call.GetId(), &bundledHeader{method: clientMethod(c.call.GetMethod())}
	reply, err := s.call(grpc.NewContextWithServerTransportStream(c.ctx, era), c)

	c.entry.cancel()
	s.mu.Lock()
	waits := s.calls[id] == c.entry
	if waits {
		delete(s.calls, id)
	}
	alone := len(s.calls) == 0
	s.mu.Unlock()
	if !waits {
		return
	}
	answer := &pb.BundledAnswer{Id: id, Reply: reply, Era: era.value()}
	if err != nil {
		answer.Reply, answer.Status = nil, encodedStatus(err)
	}
	if alone {
		s.answers.PostAlone(answer, sizeOf(answer))
	} else {
		s.post(answer)
	}
}

// call makes one call as gRPC would make it, with the same interceptor.
func (s *bundledCalls) call(ctx context.Context, c bundledCall) ([]byte, error) {
	header := metadata.MD{}
	if trace := c.call.GetTraceparent(); trace != "" {
		header.Set("traceparent", trace)
		header.Set("tracestate", c.call.GetTracestate())
	}
	ctx = metadata.NewIncomingContext(ctx, header)
	if c.call.Timeout != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.call.GetTimeout()))
		defer cancel()
	}

	read := func(to any) error {
		if err := proto.Unmarshal(c.call.GetRequest(), to.(proto.Message)); err != nil {
			return status.Error(codes.InvalidArgument, "the request is not an encoded message of the method")
		}
		return nil
	}
	reply, err := c.handle(s.service, ctx, read, s.server.interceptUnary)
	if err != nil {
		return nil, err
	}
	encoded, err := proto.Marshal(reply.(proto.Message))
	switch {
	case err != nil:
		return nil, wire.Status(fault.New(fault.Internal, "the server cannot encode its reply"))
	case len(encoded) > s.maxReply:
		return nil, status.Errorf(codes.ResourceExhausted, "the reply has %d bytes, and the client takes at most %d", len(encoded), s.maxReply)
	}
	return encoded, nil
}

// post sends an answer with the next bundle.
func (s *bundledCalls) post(a *pb.BundledAnswer) {
	s.answers.Post(a, sizeOf(a))
}

// sizeOf is the size of an answer in a bundle, in bytes.
func sizeOf(a *pb.BundledAnswer) int { return len(a.GetReply()) + len(a.GetStatus()) + answerRoom }

// answerRoom is an upper bound for the bytes of an answer without its reply.
const answerRoom = 256

// giveUp ends calls whose answers the client no longer waits for.
func (s *bundledCalls) giveUp(ids []uint64) {
	for _, id := range ids {
		s.mu.Lock()
		call := s.calls[id]
		delete(s.calls, id)
		s.mu.Unlock()
		if call != nil {
			call.cancel()
		}
	}
}

// giveUpAll ends all calls, because the client cannot get their answers.
func (s *bundledCalls) giveUpAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for _, call := range s.calls {
		call.cancel()
	}
	clear(s.calls)
}

// encodedStatus returns the status of an error for the wire.
func encodedStatus(err error) []byte {
	encoded, bad := proto.Marshal(status.Convert(err).Proto())
	if bad != nil { // the error has a text that is not UTF-8
		encoded, _ = proto.Marshal(status.New(status.Code(err), "the server cannot encode the text of the error").Proto())
	}
	return encoded
}

// bundledHeader receives the header that a handler sets. For a call outside bundles, the transport
// does this. Handlers set only the era, which clients use for request ids.
type bundledHeader struct {
	method string

	mu  sync.Mutex
	era string
}

var _ grpc.ServerTransportStream = (*bundledHeader)(nil)

// Method returns the full name of the method.
func (h *bundledHeader) Method() string { return h.method }

// SetHeader notes the era.
func (h *bundledHeader) SetHeader(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if eras := md[wire.EraHeader]; len(eras) == 1 {
		h.era = eras[0]
	}
	return nil
}

// SendHeader notes the era.
func (h *bundledHeader) SendHeader(md metadata.MD) error { return h.SetHeader(md) }

// SetTrailer does nothing, because no handler sets a trailer.
func (h *bundledHeader) SetTrailer(metadata.MD) error { return nil }

func (h *bundledHeader) value() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.era
}
