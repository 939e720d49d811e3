package remote

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/bundle"
	"github.com/perdure/perdure/internal/wire"
)

const (
	// bundleFrom is how many calls a client makes before it opens a stream for bundles. A program
	// that makes only a few calls does not need a stream.
	bundleFrom = 8
	// bundleIdle is the minimum time for which a stream without calls stays open.
	bundleIdle = 30 * time.Second
	// bundleOpening is how long the client waits for the first answer on a stream.
	bundleOpening = 10 * time.Second
	// Pauses between attempts to open a stream. While there is no stream, each call is a gRPC call
	// of its own ("goes alone").
	firstBundlePause = 100 * time.Millisecond
	maxBundlePause   = time.Minute
	// bundleLived is how long a stream must last for the client to open the next one without a
	// longer pause. A proxy may end streams earlier.
	bundleLived = time.Minute
	// bundleClosing is how long the client waits for the server to end a stream that the client
	// has ended.
	bundleClosing = 10 * time.Second
	// callRoom is an upper bound for the bytes of a call in a bundle, apart from its request and
	// its trace.
	callRoom = 128
)

// bundler is a connection. As soon as the client makes more than a few calls with one request and
// one reply, such calls share a stream of the connection. Calls that do not fit into bundles, and
// calls while there is no stream, go alone. Servers of older versions have no bundles.
type bundler struct {
	grpc.ClientConnInterface

	maxReply int
	off      bool            // every call goes alone
	ctx      context.Context //nolint:containedctx // the life of the connection
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	largest int           // bytes of the largest message that the server takes
	server  int           // how many servers the client has left so far
	made    int           // calls since the last stream ended
	stream  *bundleStream // nil for none
	opening bool
	pause   time.Duration // the pause after the next failure
	next    time.Time     // when the client may try to open a stream
}

func newBundler(conn grpc.ClientConnInterface, cfg *Config) *bundler {
	b := &bundler{ClientConnInterface: conn, maxReply: cfg.MaxReply, off: cfg.NoBundles, pause: firstBundlePause, largest: 2 * bundle.MaxBytes}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// close ends the stream. Calls that are under way on it fail.
func (b *bundler) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.running.Wait()
}

// moveOn retires the stream. Further calls go alone until there is a new stream. The new stream
// goes to the server that the client uses by then. Calls that are under way may finish.
func (b *bundler) moveOn() {
	b.mu.Lock()
	s := b.stream
	b.stream, b.made = nil, 0
	b.server++
	b.mu.Unlock()
	if s != nil {
		s.retire()
	}
}

// setLargest sets the largest message that the server takes.
func (b *bundler) setLargest(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes > 0 {
		b.largest = bytes
	}
}

// Invoke makes a call with one request and one reply.
func (b *bundler) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if name, ok := bundledMethod(method); ok && !b.off {
		if c := newBundledCall(name, args, opts); c != nil && c.setHeader(ctx) {
			if s := b.streamFor(); s != nil && s.add(c) {
				return s.await(ctx, c, reply.(proto.Message))
			}
		}
	}
	return b.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// bundledMethod returns the name of a method that bundles carry. Calls of the method Server go
// alone, because the client uses them to find out which server answers.
func bundledMethod(full string) (name string, ok bool) {
	service, name, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	return name, service == pb.ClientService_ServiceDesc.ServiceName && name != "Server"
}

// streamFor returns the stream for the next call, or nil if there is none. It starts to open a
// stream when there have been enough calls.
func (b *bundler) streamFor() *bundleStream {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream != nil && !b.stream.isOver() {
		return b.stream
	}
	b.stream = nil
	b.made++
	if b.made >= bundleFrom && !b.opening && !b.closed && !time.Now().Before(b.next) {
		b.opening = true
		b.running.Go(b.open)
	}
	return nil
}

// open opens a stream and serves it until it ends.
func (b *bundler) open() {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	b.mu.Lock()
	server := b.server
	b.mu.Unlock()
	s, err := b.connect(ctx, cancel)
	b.mu.Lock()
	b.opening = false
	if err != nil {
		b.backOff(err)
		b.mu.Unlock()
		return
	}
	b.stream, b.made = s, 0
	if b.server != server { // the client has left that server in the meantime
		b.stream = nil
		s.retire()
	}
	b.mu.Unlock()

	began := time.Now()
	err = s.run(ctx)
	b.mu.Lock()
	if b.stream == s {
		b.stream = nil
	}
	if time.Since(began) > bundleLived {
		b.pause = firstBundlePause
	} else if !errors.Is(err, io.EOF) {
		b.backOff(err)
	}
	b.mu.Unlock()
	s.fail(err)
}

// backOff makes the client wait before it opens another stream. The caller holds the lock.
func (b *bundler) backOff(err error) {
	if status.Code(err) == codes.Unimplemented { // the server is of an older version
		b.pause = maxBundlePause
	}
	b.next = time.Now().Add(jitter(b.pause))
	b.pause = min(2*b.pause, maxBundlePause)
}

// connect opens a stream and waits until the server has answered on it.
func (b *bundler) connect(ctx context.Context, cancel context.CancelFunc) (*bundleStream, error) {
	late := time.AfterFunc(bundleOpening, cancel)
	defer late.Stop()
	// Allow a little more than the largest reply, because it comes inside a bundle.
	st, err := pb.NewClientServiceClient(b.ClientConnInterface).Bundle(ctx, grpc.MaxCallRecvMsgSize(b.maxReply+2*bundle.MaxBytes))
	if err != nil {
		return nil, err
	}
	if err := st.Send(&pb.CallBundle{MaxReply: int64(b.maxReply)}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	first, err := st.Recv()
	if err != nil {
		return nil, err
	}
	if !late.Stop() {
		return nil, status.Error(codes.DeadlineExceeded, "the server has answered late")
	}

	b.mu.Lock()
	largest := b.largest
	b.mu.Unlock()
	s := &bundleStream{st: st, most: int(first.GetMost()), largest: min(bundle.MaxCall, largest/4), cancel: cancel, calls: map[uint64]*bundledCall{}, out: bundle.NewSender[outgoingCall](largest)}
	s.quiet, s.stop = context.WithCancel(ctx)
	if p, ok := peer.FromContext(st.Context()); ok {
		s.server = *p
	}
	return s, nil
}

// bundleStream is a stream that carries bundles of calls.
type bundleStream struct {
	st      grpc.BidiStreamingClient[pb.CallBundle, pb.AnswerBundle]
	server  peer.Peer
	most    int // how many calls may be without an answer
	largest int // bytes of the largest request
	out     *bundle.Sender[outgoingCall]
	cancel  context.CancelFunc // ends the stream
	quiet   context.Context    //nolint:containedctx // ends when there is nothing further to send
	stop    context.CancelFunc

	mu    sync.Mutex
	over  bool // takes no further calls
	used  bool // a call has used it since the last check
	last  uint64
	calls map[uint64]*bundledCall // without an answer
	// answered is the highest id of a call with an answer. gaveUp is the highest id that any call
	// had when the client last gave up a call.
	answered, gaveUp uint64
}

// outgoingCall is a call that the client sends, or the id of a call that it gives up.
type outgoingCall struct {
	call    *bundledCall
	givenUp uint64
}

// bundledCall is a call on a stream.
type bundledCall struct {
	id      uint64
	message *pb.BundledCall
	peer    *peer.Peer   // where the caller wants the peer; nil if it does not
	header  *metadata.MD // where the caller wants the headers; nil if it does not
	sent    bool         // the stream has taken it
	answer  chan *pb.BundledAnswer
	err     error // the error of the stream, if answer was closed without a value
}

// newBundledCall encodes a call. It returns nil if the call must go alone.
func newBundledCall(method string, args any, opts []grpc.CallOption) *bundledCall {
	c := &bundledCall{answer: make(chan *pb.BundledAnswer, 1)}
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.PeerCallOption:
			c.peer = o.PeerAddr
		case grpc.HeaderCallOption:
			c.header = o.HeaderAddr
		case grpc.StaticMethodCallOption: // set by generated code, for interceptors
		default:
			return nil
		}
	}
	m, ok := args.(proto.Message)
	if !ok || proto.Size(m) > bundle.MaxCall {
		return nil
	}
	request, err := proto.Marshal(m)
	if err != nil { // the call goes alone, and gRPC returns the error
		return nil
	}
	c.message = &pb.BundledCall{Method: method, Request: request}
	return c
}

// setHeader copies the headers of the call. It reports false if a bundle cannot carry one of them,
// so that the call must go alone.
func (c *bundledCall) setHeader(ctx context.Context) bool {
	header, _ := metadata.FromOutgoingContext(ctx)
	for name, values := range header {
		text := strings.Join(values, ",")
		if len(text) > bundle.MaxCall || !utf8.ValidString(text) {
			return false
		}
		switch name {
		case wire.TimeoutHeader:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return false
			}
			c.message.Timeout = &n
		case "traceparent":
			c.message.Traceparent = text
		case "tracestate":
			c.message.Tracestate = text
		default:
			return false
		}
	}
	return true
}

// size is the size of the call in a bundle, in bytes.
func (c *bundledCall) size() int {
	return len(c.message.GetRequest()) + len(c.message.GetTraceparent()) + len(c.message.GetTracestate()) + callRoom
}

// add sends a call. It reports false if the stream cannot take it.
func (s *bundleStream) add(c *bundledCall) bool {
	added, alone := s.register(c)
	if alone {
		s.out.PostAlone(outgoingCall{call: c}, c.size())
	}
	return added
}

// register notes a call, and posts it unless it is alone. A call is alone if it is the only one
// without an answer, and the server has read everything that was sent before. So sending an alone
// call does not block.
func (s *bundleStream) register(c *bundledCall) (added, alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.calls) >= s.most || c.size() > s.largest || s.out.IsFull() {
		return false, false
	}
	s.last++
	s.used = true
	c.id = s.last
	c.message.Id = c.id
	s.calls[c.id] = c
	if len(s.calls) == 1 && (s.gaveUp == 0 || s.gaveUp < s.answered) {
		return true, true
	}
	s.out.Post(outgoingCall{call: c}, c.size())
	return true, false
}

// isOver reports whether the stream takes no further calls.
func (s *bundleStream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// await waits for the answer to a call.
func (s *bundleStream) await(ctx context.Context, c *bundledCall, reply proto.Message) error {
	var a *pb.BundledAnswer
	select {
	case a = <-c.answer:
	case <-ctx.Done():
		if s.giveUp(c) {
			return status.FromContextError(ctx.Err()).Err()
		}
		a = <-c.answer
	}

	// Set the peer only if a server may have seen the call. The caller relies on that.
	if c.peer != nil && (a == nil && c.sent || a != nil && !a.GetUntouched()) {
		*c.peer = s.server
	}
	switch {
	case a == nil:
		return c.err
	case a.GetUntouched():
		return status.Error(codes.Unavailable, "the server takes no further calls")
	}
	if c.header != nil && a.GetEra() != "" {
		*c.header = metadata.Pairs(wire.EraHeader, a.GetEra())
	}
	if len(a.GetStatus()) > 0 {
		return readBundledStatus(a.GetStatus())
	}
	if err := proto.Unmarshal(a.GetReply(), reply); err != nil {
		return status.Error(codes.Internal, "the client cannot read the reply of the server")
	}
	return nil
}

// readBundledStatus reads the error of a call.
func readBundledStatus(encoded []byte) error {
	var p spb.Status
	if err := proto.Unmarshal(encoded, &p); err != nil || codes.Code(p.GetCode()) == codes.OK {
		return status.Error(codes.Internal, "the client cannot read the error of the server")
	}
	return status.ErrorProto(&p)
}

// giveUp removes a call from the stream, and tells the server. It returns false if the answer to
// the call has arrived or the stream has failed. The server gets this message before any later
// call. So it never counts more open calls than the client does.
func (s *bundleStream) giveUp(c *bundledCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.calls[c.id]; !waits {
		return false
	}
	delete(s.calls, c.id)
	s.gaveUp = s.last
	s.out.Post(outgoingCall{givenUp: c.id}, callRoom)
	if c.peer != nil {
		*c.peer = s.server
	}
	s.endIfDone()
	return true
}

// retire makes the stream take no further calls. The stream ends after the last answer.
func (s *bundleStream) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.endIfDone()
}

// endIfDone ends the client's side of a stream that has nothing more to do. The caller holds the
// lock.
func (s *bundleStream) endIfDone() {
	if s.over && len(s.calls) == 0 {
		s.stop()
	}
}

// run sends calls and takes answers until the stream ends. It returns why.
func (s *bundleStream) run(ctx context.Context) error {
	idle := time.NewTicker(bundleIdle)
	defer idle.Stop()
	sent := make(chan struct{})
	var late *time.Timer
	go func() {
		defer close(sent)
		if err := s.out.Run(s.quiet, s.send); err == nil && ctx.Err() == nil {
			_ = s.st.CloseSend() // Recv returns how the stream ends
			late = time.AfterFunc(bundleClosing, s.cancel)
		}
	}()
	go func() {
		for {
			select {
			case <-idle.C:
				s.retireIfIdle()
			case <-sent:
				return
			}
		}
	}()

	err := s.receive()
	s.stop()
	<-sent
	if late != nil {
		late.Stop()
	}
	return err
}

// retireIfIdle retires a stream that has had no call for a while.
func (s *bundleStream) retireIfIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.used && len(s.calls) == 0 {
		s.over = true
		s.endIfDone()
	}
	s.used = false
}

// send sends one bundle of calls.
func (s *bundleStream) send(all []outgoingCall) error {
	m := &pb.CallBundle{Calls: make([]*pb.BundledCall, 0, len(all))}
	s.mu.Lock()
	for _, o := range all {
		if o.call != nil {
			o.call.sent = true
			m.Calls = append(m.Calls, o.call.message)
		} else {
			m.GivenUp = append(m.GivenUp, o.givenUp)
		}
	}
	s.mu.Unlock()
	return s.st.Send(m)
}

// receive takes answers until the stream ends, and returns why.
func (s *bundleStream) receive() error {
	for {
		m, err := s.st.Recv()
		if err != nil {
			return err
		}
		for _, a := range m.GetAnswers() {
			s.take(a)
		}
		if m.GetClosing() {
			s.retire()
		}
	}
}

// take passes an answer to its call. It drops the answer to a call that was given up.
func (s *bundleStream) take(a *pb.BundledAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[a.GetId()]
	if c == nil {
		return
	}
	delete(s.calls, a.GetId())
	s.answered = max(s.answered, a.GetId())
	c.answer <- a
	s.endIfDone()
}

// fail ends all calls without an answer with the error of the stream.
func (s *bundleStream) fail(err error) {
	err = bundleError(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, c := range s.calls {
		c.err = err
		close(c.answer)
	}
	clear(s.calls)
}

// bundleError returns the error of a call whose stream has ended. The server may have seen the
// call. If the credential or the connection has ended, the error is the same as for a call that
// goes alone. Any other error says that no server has answered.
func bundleError(err error) error {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.Canceled, codes.Unavailable:
		return err
	default:
		return status.Error(codes.Unavailable, "the stream of calls has ended: "+status.Convert(err).Message())
	}
}
