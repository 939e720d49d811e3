package grpcapi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
)

// A call that panics fails without ending the server. Neither the client nor the log sees a value
// that may quote a payload. The log has the method, the stack and what the runtime says.
func TestPanicsKeepPayloadsOutOfTheLog(t *testing.T) {
	t.Parallel()
	var none []int
	for want, panics := range map[string]func(){
		"index out of range [3] with length 0": func() { none[3]++ },
		"a value of type *errors.errorString":  func() { panic(errors.New("secret")) },
		"a value of type string":               func() { panic("secret") },
	} {
		var log bytes.Buffer
		s := &Server{config: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, drained: t.Context()}
		err := s.guard(t.Context(), "/service/Method", func(context.Context) error { panics(); return nil })
		if !fault.Is(err, fault.Internal) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the client gets %v", want, err)
		}
		if text := log.String(); !strings.Contains(text, want) || !strings.Contains(text, "/service/Method") || !strings.Contains(text, "panic_test.go") || strings.Contains(text, "secret") {
			t.Errorf("%s: the log has %s", want, text)
		}
	}
}
