package perdure

import (
	"encoding/json"
	"reflect"
	"testing"
)

// The fast decoder of plain values never disagrees with encoding/json.
func FuzzPlainValues(f *testing.F) {
	for _, text := range []string{
		"0", "-0", "-", "7", "007", "-12", "+1", "1.0", "1e3", "999999999999999999", "9223372036854775807", "-9223372036854775808",
		"9223372036854775808", " 1", "1 ", "true", "false", "True", "null", `""`, `"a b"`, `"a\n"`, `"a"b"`, `"`, `"é"`, "\"\x01\"", `"<&>"`, "[]", "{}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return // unmarshal never passes an empty value to readPlain
		}
		comparePlain[int](t, data)
		comparePlain[int64](t, data)
		comparePlain[bool](t, data)
		comparePlain[string](t, data)
		comparePlain[int8](t, data)
		comparePlain[*int](t, data)
	})
}

func comparePlain[T any](t *testing.T, data []byte) {
	t.Helper()
	got, ok := readPlain[T](data)
	if !ok {
		return
	}
	var want T
	if err := json.Unmarshal(data, &want); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q is read as %v; encoding/json says %v, %v", data, got, want, err)
	}
}
