package perdurev1_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/perdure/perdure/api/perdure/v1"
)

var update = flag.Bool("update", false, "add what is new in the protocol to the baseline")

// baseline has one line for every message, field, enum value and method that was ever published.
const baseline = "testdata/protocol.txt"

// Programs of other versions speak the protocol too. A field, value or method that was published is
// never removed, renumbered, retyped or renamed. To add new ones, run the test with -update.
func TestProtocolOnlyGrows(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(baseline)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	published := strings.FieldsFunc(string(raw), func(r rune) bool { return r == '\n' })
	current := protocol()

	for _, line := range published {
		if !slices.Contains(current, line) {
			t.Errorf("the protocol no longer has %q, which other versions may use", line)
		}
	}
	if *update {
		all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(published, current))))
		if err := os.WriteFile(baseline, []byte(strings.Join(all, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, line := range current {
		if !slices.Contains(published, line) {
			t.Errorf("the baseline lacks %q: add it with go test ./api/perdure/v1 -update", line)
		}
	}
}

// The lines contain names, numbers and types. Without any of them, TestProtocolOnlyGrows would not
// notice a change.
func TestProtocolLinesSayWhatMatters(t *testing.T) {
	t.Parallel()
	lines := protocol()
	for _, want := range []string{
		"field perdure.v1.Address.key = 2 string",
		"field perdure.v1.StartRequest.labels = 6 repeated perdure.v1.Label",
		"field perdure.v1.ListDeadRequest.requeued = 6 optional bool",
		"field perdure.v1.DeletePart.rows = 1 bytes in part",
		"value perdure.v1.Status.STATUS_RUNNING = 1",
		"method perdure.v1.ClientService.Delete(stream perdure.v1.DeleteRequest) returns (stream perdure.v1.DeletePart)",
		"method perdure.v1.ClientService.Start(perdure.v1.StartRequest) returns (perdure.v1.StartReply)",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("there is no line %q", want)
		}
	}
}

// protocol describes everything in our package that other programs rely on. It returns one line for
// each thing, sorted.
func protocol() (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	own := pb.File_perdure_v1_common_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(own, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Messages().Len() {
			describeMessage(add, f.Messages().Get(i))
		}
		for i := range f.Enums().Len() {
			describeEnum(add, f.Enums().Get(i))
		}
		for i := range f.Services().Len() {
			describeService(add, f.Services().Get(i))
		}
		return true
	})
	slices.Sort(lines)
	return lines
}

func describeMessage(add func(string, ...any), m protoreflect.MessageDescriptor) {
	add("message %s", m.FullName())
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		add("field %s = %d %s", f.FullName(), f.Number(), typeOf(f))
	}
	for i := range m.Messages().Len() {
		describeMessage(add, m.Messages().Get(i))
	}
	for i := range m.Enums().Len() {
		describeEnum(add, m.Enums().Get(i))
	}
}

// typeOf describes what a field holds.
func typeOf(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	switch {
	case f.Message() != nil:
		kind = string(f.Message().FullName())
	case f.Enum() != nil:
		kind = string(f.Enum().FullName())
	}
	switch oneof := f.ContainingOneof(); {
	case f.IsList() || f.IsMap():
		return "repeated " + kind
	case f.HasOptionalKeyword():
		return "optional " + kind
	case oneof != nil:
		return kind + " in " + string(oneof.Name())
	}
	return kind
}

func describeEnum(add func(string, ...any), e protoreflect.EnumDescriptor) {
	add("enum %s", e.FullName())
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		add("value %s.%s = %d", e.FullName(), v.Name(), v.Number())
	}
}

func describeService(add func(string, ...any), s protoreflect.ServiceDescriptor) {
	add("service %s", s.FullName())
	stream := map[bool]string{true: "stream "}
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		add("method %s(%s%s) returns (%s%s)", m.FullName(), stream[m.IsStreamingClient()], m.Input().FullName(), stream[m.IsStreamingServer()], m.Output().FullName())
	}
}
