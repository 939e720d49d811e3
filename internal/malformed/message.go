package malformed

import (
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Numbers and Words are values that may cause errors in handlers.
var (
	Numbers = []int64{0, 1, -1, 2, 99, 1 << 31, -1 << 31, 1 << 62, -1 << 63, 1<<63 - 1}
	Words   = []string{"", "x", "order", "\x00", "\x1f", strings.Repeat("ä", 5000), "../..", "run_0", "'", "default"}
)

// Scalar returns a value for a field that is not a message.
type Scalar func(protoreflect.FieldDescriptor) protoreflect.Value

// Methods returns the methods of all services of some files.
func Methods(files ...protoreflect.FileDescriptor) []protoreflect.MethodDescriptor {
	var methods []protoreflect.MethodDescriptor
	for _, file := range files {
		for i := range file.Services().Len() {
			all := file.Services().Get(i).Methods()
			for j := range all.Len() {
				methods = append(methods, all.Get(j))
			}
		}
	}

	return methods
}

// Fill sets every field of a message, and of the messages in it down to a depth. Of the n fields of
// a oneof it sets only the field that pick chooses.
func Fill(m protoreflect.Message, depth int, pick func(n int) int, scalar Scalar) {
	filler{pick, scalar}.fill(m, depth)
}

// filler says how to fill messages.
type filler struct {
	pick   func(n int) int
	scalar Scalar
}

func (l filler) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	chosen := map[protoreflect.FullName]int{}
	for i := range fields.Len() {
		f := fields.Get(i)
		if group := f.ContainingOneof(); group != nil && !group.IsSynthetic() {
			if _, drawn := chosen[group.FullName()]; !drawn {
				chosen[group.FullName()] = group.Fields().Get(l.pick(group.Fields().Len())).Index()
			}
			if chosen[group.FullName()] != i {
				continue
			}
		}
		l.set(m, f, depth)
	}
}

// set sets a field.
func (l filler) set(m protoreflect.Message, f protoreflect.FieldDescriptor, depth int) {
	nested := f.Kind() == protoreflect.MessageKind
	switch {
	case f.IsMap():
		if f.MapValue().Kind() != protoreflect.MessageKind {
			m.Mutable(f).Map().Set(l.scalar(f.MapKey()).MapKey(), l.scalar(f.MapValue()))
		}
	case nested && depth == 0:
	case nested && f.IsList():
		l.fill(m.Mutable(f).List().AppendMutable().Message(), depth-1)
	case nested:
		l.fill(m.Mutable(f).Message(), depth-1)
	case f.IsList():
		m.Mutable(f).List().Append(l.scalar(f))
	default:
		m.Set(f, l.scalar(f))
	}
}

// Values returns a Scalar that uses the number, the text or the bytes for a field, according to its
// type. An enum gets the number even if the enum has no such value. Booleans are true, and
// floating-point fields get NaN.
func Values(number int64, text string, raw []byte) Scalar {
	return func(f protoreflect.FieldDescriptor) protoreflect.Value {
		switch f.Kind() {
		case protoreflect.BoolKind:
			return protoreflect.ValueOfBool(true)
		case protoreflect.EnumKind:
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(number)))
		case protoreflect.Int32Kind:
			return protoreflect.ValueOfInt32(int32(number))
		case protoreflect.Uint32Kind:
			return protoreflect.ValueOfUint32(uint32(number))
		case protoreflect.Int64Kind:
			return protoreflect.ValueOfInt64(number)
		case protoreflect.Uint64Kind:
			return protoreflect.ValueOfUint64(uint64(number))
		case protoreflect.DoubleKind:
			return protoreflect.ValueOfFloat64(math.NaN())
		case protoreflect.StringKind:
			return protoreflect.ValueOfString(text)
		case protoreflect.BytesKind:
			return protoreflect.ValueOfBytes(raw)
		default:
			panic(f.Kind().String())
		}
	}
}

// Last picks the last of n fields.
func Last(n int) int { return n - 1 }

// Mutate returns a randomly changed copy of some bytes.
func Mutate(r *rand.Rand, raw []byte) []byte {
	out := append([]byte(nil), raw[:min(len(raw), 4096)]...)
	for range r.IntN(20) {
		out = append(out, byte(r.Uint32()))
	}
	if len(out) > 0 {
		out[r.IntN(len(out))] ^= byte(r.Uint32())
	}
	return out
}
