package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
)

func TestClassOf(t *testing.T) {
	t.Parallel()
	for c := store.Retryable; c <= store.Away; c++ {
		err := error(store.Errorf(c, "commit", "it is %s", "so"))
		for depth, e := range []error{err, fmt.Errorf("lane 0: %w", err), errors.Join(errors.New("x"), fmt.Errorf("a: %w", err))} {
			if got := store.ClassOf(e); got != c {
				t.Errorf("depth %d: class %s, want %s", depth, got, c)
			}
		}
		if want := "commit: " + c.String() + ": it is so"; err.Error() != want {
			t.Errorf("text = %q, want %q", err, want)
		}
	}

	// An error without a class gets the class Unknown.
	for _, err := range []error{errors.New("x"), context.DeadlineExceeded, fault.New(fault.Invalid, "x")} {
		if got := store.ClassOf(err); got != store.Unknown {
			t.Errorf("%v: class %s, want unknown", err, got)
		}
	}

	if got := store.Class(99).String(); got != "class(99)" {
		t.Errorf("a class of a later build is called %q", got)
	}
}

// The API looks at kinds, not at classes, so every class has a kind. A kind that the adapter set
// stays.
func TestKindOfClass(t *testing.T) {
	t.Parallel()
	for c, want := range map[store.Class]fault.Kind{
		store.Retryable: fault.Unavailable, store.Unknown: fault.Unavailable, store.Refused: fault.Invalid,
		store.Fenced: fault.Unavailable, store.Away: fault.Unavailable,
	} {
		err := fmt.Errorf("outer: %w", store.Errorf(c, "commit", "x"))
		if got := fault.KindOf(err); got != want {
			t.Errorf("%s: kind %s, want %s", c, got, want)
		}
	}
	corrupt := store.Errorf(store.Away, "open", "%w", fault.New(fault.Corrupt, "page 7"))
	if got := fault.KindOf(corrupt); got != fault.Corrupt {
		t.Errorf("kind %s, want corrupt", got)
	}
}

func TestErrFenced(t *testing.T) {
	t.Parallel()
	fenced := fmt.Errorf("lane 0: %w", store.Errorf(store.Fenced, "renew", "epoch 3 is gone"))
	if !errors.Is(fenced, store.ErrFenced) || !errors.Is(store.ErrFenced, store.ErrFenced) {
		t.Error("a fenced error is not ErrFenced")
	}

	for c := store.Retryable; c <= store.Away; c++ {
		if err := store.Errorf(c, "commit", "x"); c != store.Fenced && errors.Is(err, store.ErrFenced) {
			t.Errorf("%s is ErrFenced", c)
		}
	}

	// Two errors of the same class are not the same error.
	if errors.Is(fenced, store.Errorf(store.Fenced, "renew", "epoch 3 is gone")) {
		t.Error("matches another error of its class")
	}
	cause := errors.New("driver")
	if !errors.Is(store.Errorf(store.Away, "commit", "%w", cause), cause) {
		t.Error("the cause is lost")
	}
}

func TestVersionError(t *testing.T) {
	t.Parallel()
	key := store.SettingKey{Tenant: "acme", Kind: "limit", Name: "api"}

	for _, c := range []struct {
		expected, present int64
		remove            bool
		text              string
	}{
		{0, 0, false, ""},
		{7, 7, false, ""},
		{7, 7, true, ""},
		{0, 0, true, "setting acme/limit/api does not exist, version 0 was expected"},
		{7, 0, false, "setting acme/limit/api does not exist, version 7 was expected"},
		{0, 7, false, "setting acme/limit/api exists, with version 7"},
		{6, 7, true, "setting acme/limit/api has version 7, not 6"},
	} {
		err := store.CheckVersion("put setting", store.VersionError{Key: key, Expected: c.expected, Present: c.present}, c.remove)
		if c.text == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}

		var wrong *store.VersionError
		if !errors.As(err, &wrong) || wrong.Present != c.present || wrong.Error() != c.text {
			t.Errorf("%+v: %v", c, err)
		}
		if store.ClassOf(err) != store.Refused || fault.KindOf(fmt.Errorf("outer: %w", err)) != fault.Conflict {
			t.Errorf("%+v: class %s, kind %s", c, store.ClassOf(err), fault.KindOf(err))
		}
	}
}
