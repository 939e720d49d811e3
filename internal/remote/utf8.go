package remote

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// fieldWords translates names of fields to the words that package request uses in errors.
var fieldWords = map[string]string{"type": "the name of the workflow", "workflows": "the name of the workflow"}

// notUTF8 returns what is wrong with a message that protobuf cannot encode: every text that is not
// valid UTF-8.
func notUTF8(m protoreflect.Message) (problems []error) {
	check := func(f protoreflect.FieldDescriptor, v protoreflect.Value) {
		switch {
		case f.Message() != nil:
			problems = append(problems, notUTF8(v.Message())...)
		case f.Kind() == protoreflect.StringKind && !utf8.ValidString(v.String()):
			what := fieldWords[string(f.Name())]
			if what == "" {
				what = "the " + strings.ReplaceAll(string(f.Name()), "_", " ")
			}
			problems = append(problems, fmt.Errorf("%s %.80q is not valid UTF-8", what, v.String()))
		}
	}

	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.IsList() {
			for i := range v.List().Len() {
				check(f, v.List().Get(i))
			}
		} else {
			check(f, v)
		}
		return true
	})
	return problems
}
