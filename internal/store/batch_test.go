package store_test

import (
	"reflect"
	"testing"

	"github.com/perdure/perdure/internal/store"
)

// Rows counts every list of rows, and Clone copies every list. This test fails if a developer adds
// a list and forgets one of the two functions.
func TestBatchKnowsEveryList(t *testing.T) {
	t.Parallel()
	empty := store.Batch{Lane: store.LaneRef{Lane: 1}, Number: 7, At: 1}
	if !empty.Empty() || empty.Rows() != 0 {
		t.Errorf("a batch without rows: empty %v, %d rows", empty.Empty(), empty.Rows())
	}

	lists := 0
	for field := range reflect.TypeFor[store.Batch]().Fields() {
		if field.Type.Kind() != reflect.Slice {
			continue
		}
		lists++
		var b store.Batch
		list := reflect.ValueOf(&b).Elem().FieldByIndex(field.Index)
		list.Set(reflect.MakeSlice(field.Type, 3, 3))
		if field.Name == "Passed" { // other lists have the effects of these messages
			if !b.Empty() || b.Rows() != 0 {
				t.Errorf("three passed messages: empty %v, %d rows", b.Empty(), b.Rows())
			}
		} else if b.Empty() || b.Rows() != 3 {
			t.Errorf("three %s: empty %v, %d rows", field.Name, b.Empty(), b.Rows())
		}
		copied := reflect.ValueOf(b.Clone()).Elem().FieldByIndex(field.Index)
		if copied.Len() != 3 || copied.Pointer() == list.Pointer() {
			t.Errorf("%s are shared with the copy", field.Name)
		}
	}

	if lists < 20 {
		t.Errorf("%d lists: this test proves nothing", lists)
	}
}
