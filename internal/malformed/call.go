package malformed

import (
	"context"
	"errors"
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
)

// Calls makes malformed calls over a connection.
type Calls struct {
	Conn    grpc.ClientConnInterface
	Methods []protoreflect.MethodDescriptor
	// Wait is how long the client of a call waits before it leaves. Some calls wait for work.
	Wait time.Duration
	// Words are texts for fields, such as ids that exist on the server.
	Words []string
	// Unserved are the full names of methods that the server answers with UNIMPLEMENTED.
	Unserved []string
}

// Round calls every method with random bytes, with a random message, and with that message after it
// was damaged. It fails the test if an answer shows a mistake of the server.
func (c *Calls) Round(ctx context.Context, t *testing.T, seed uint64, raw []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	for _, m := range c.Methods {
		for _, request := range Requests(r, m, raw, c.Words) {
			c.try(ctx, t, m, request)
		}
	}
}

// Requests returns random bytes, a random message for a method, and the message after it was
// damaged.
func Requests(r *rand.Rand, m protoreflect.MethodDescriptor, raw []byte, words []string) [][]byte {
	all := [][]byte{Mutate(r, raw)}
	in := dynamicpb.NewMessage(m.Input())
	Fill(in, 1+r.IntN(4), r.IntN, func(f protoreflect.FieldDescriptor) protoreflect.Value {
		return Values(Numbers[r.IntN(len(Numbers))], words[r.IntN(len(words))], Mutate(r, raw))(f)
	})
	encoded, err := proto.Marshal(in)
	if err != nil {
		return all // the message has a text that is not UTF-8
	}
	all = append(all, encoded)
	if len(encoded) > 0 {
		damaged := slices.Clone(encoded) // the client may still be sending encoded
		damaged[r.IntN(len(damaged))] ^= byte(1 + r.IntN(255))
		all = append(all, damaged[:r.IntN(len(damaged)+1)])
	}
	return all
}

// try calls a method with the bytes of a message.
func (c *Calls) try(ctx context.Context, t *testing.T, m protoreflect.MethodDescriptor, raw []byte) {
	t.Helper()
	ctx, leave := context.WithTimeout(ctx, c.Wait)
	defer leave()
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	err := c.call(ctx, name, raw)
	if errors.Is(err, io.EOF) {
		return
	}

	switch status.Code(err) {
	case codes.Unimplemented:
		if !slices.Contains(c.Unserved, name) {
			t.Errorf("%s with %.100x: %v", name, raw, err)
		}
	case codes.Unknown, codes.DataLoss:
		t.Errorf("%s with %.100x: %v", name, raw, err)
	case codes.Internal:
		// gRPC itself returns this code for a message that it cannot read.
		if !strings.Contains(err.Error(), "unmarshalling request") && !strings.Contains(err.Error(), "failed to unmarshal") {
			t.Errorf("%s with %.100x: %v", name, raw, err)
		}
	default:
	}
}

// call sends bytes and reads all replies.
func (c *Calls) call(ctx context.Context, name string, raw []byte) error {
	stream, err := c.Conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, name, grpc.ForceCodecV2(Bytes{}))
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
}

// Kept returns how many bytes of memory are in use.
func Kept() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Bytes is a codec that sends bytes as they are.
type Bytes struct{}

// Marshal returns the bytes.
func (Bytes) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not bytes", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal keeps the bytes.
func (Bytes) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Name returns the name of the usual codec, so that the server uses that codec.
func (Bytes) Name() string { return "proto" }
