package grpcapi_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/grpcapi"
)

// fuzzRounds is how many rounds of malformed calls a test makes. A round is a call of every method
// with random bytes, and one with a random message.
var fuzzRounds = flag.Int("rounds", 4, "rounds of malformed calls of every method")

// mostKept is how much memory the server may keep after all calls of a run.
const mostKept = 64 << 20

// FuzzCalls calls every method with bytes that are no message, and with messages of nonsense. The
// server never fails, and nothing panics.
func FuzzCalls(f *testing.F) {
	d := open(f, func(c *grpcapi.Config) { c.MaxMessage = 1 << 20 })
	var methods []protoreflect.MethodDescriptor
	for _, file := range []protoreflect.FileDescriptor{pb.File_perdure_v1_client_proto, pb.File_perdure_v1_worker_proto} {
		for i := range file.Services().Len() {
			all := file.Services().Get(i).Methods()
			for j := range all.Len() {
				methods = append(methods, all.Get(j))
			}
		}
	}
	before := kept()
	for i := range *fuzzRounds {
		f.Add(uint64(i), []byte(strings.Repeat("\x0a\x05", i)))
	}

	f.Fuzz(func(t *testing.T, seed uint64, raw []byte) {
		r := rand.New(rand.NewPCG(seed, 2))
		for _, m := range methods {
			d.try(t, m, mutate(r, raw))
			in := dynamicpb.NewMessage(m.Input())
			fill(in, 1+r.IntN(4), func(f protoreflect.FieldDescriptor) protoreflect.Value {
				return nonsense(numbers[r.IntN(len(numbers))], words[r.IntN(len(words))], mutate(r, raw))(f)
			})
			encoded, err := proto.Marshal(in)
			if err != nil {
				continue // a text that is not UTF-8
			}
			d.try(t, m, encoded)
			if len(encoded) > 0 { // a message that was damaged on the way
				damaged := slices.Clone(encoded) // the client may still send the first one
				damaged[r.IntN(len(damaged))] ^= byte(1 + r.IntN(255))
				d.try(t, m, damaged[:r.IntN(len(damaged)+1)])
			}
		}
		if strings.Contains(d.log.String(), "panicked") {
			t.Fatalf("a handler panicked:\n%s", d.log)
		}
	})
	f.Cleanup(func() {
		if after := kept(); after > before+mostKept {
			f.Errorf("the server keeps %d MiB, and %d MiB before the calls", after>>20, before>>20)
		}
	})
}

// kept is how much memory is in use.
func kept() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

var (
	numbers = []int64{0, 1, -1, 2, 99, 1 << 31, -1 << 31, 1 << 62, -1 << 63, 1<<63 - 1}
	words   = []string{"", "x", "order", "\x00", "\x1f", strings.Repeat("ä", 5000), "../..", "run_0", "'", "default"}
)

// mutate returns some bytes, based on the given ones.
func mutate(r *rand.Rand, raw []byte) []byte {
	out := append([]byte(nil), raw[:min(len(raw), 4096)]...)
	for range r.IntN(20) {
		out = append(out, byte(r.Uint32()))
	}
	if len(out) > 0 {
		out[r.IntN(len(out))] ^= byte(r.Uint32())
	}
	return out
}

// try calls a method with the bytes of a message. Calls that wait end soon, because the client
// leaves.
func (d *door) try(t *testing.T, m protoreflect.MethodDescriptor, raw []byte) {
	t.Helper()
	ctx, leave := context.WithTimeout(d.ctx, 20*time.Millisecond)
	defer leave()
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	err := func() error {
		stream, err := d.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, name, grpc.ForceCodecV2(bytesCodec{}))
		if err != nil {
			return err
		}
		if err := errors.Join(stream.SendMsg(raw), stream.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		for {
			var reply []byte
			if err := stream.RecvMsg(&reply); err != nil {
				return err
			}
		}
	}()

	if errors.Is(err, io.EOF) {
		return
	}
	switch status.Code(err) {
	case codes.Unknown, codes.DataLoss, codes.Unimplemented:
		t.Errorf("%s with %.100x: %v", name, raw, err)
	case codes.Internal:
		// gRPC itself says so of a message that it cannot read.
		if !strings.Contains(err.Error(), "unmarshalling request") && !strings.Contains(err.Error(), "failed to unmarshal") {
			t.Errorf("%s with %.100x: %v", name, raw, err)
		}
	default:
	}
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

// Marshal returns the bytes.
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not bytes", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal keeps the bytes.
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Name is that of the usual codec, so that the server uses its own.
func (bytesCodec) Name() string { return "proto" }
