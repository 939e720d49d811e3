package restapi_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/restapi"
)

// panicking is an engine that panics.
type panicking struct {
	api.Backend
	panics atomic.Pointer[func()]
}

func (p *panicking) Entity(context.Context, model.Address) (info api.EntityInfo, err error) {
	(*p.panics.Load())()
	return info, nil
}

// lockedBuffer is a buffer that several goroutines may use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// text returns what has been written since the last call.
func (l *lockedBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// A request that panics fails without ending the server. Neither the client nor the log sees a
// value that may quote a payload. The log has the path, the stack and what the runtime says.
func TestPanicsKeepPayloadsOutOfTheLog(t *testing.T) {
	t.Parallel()
	p, log := &panicking{}, &lockedBuffer{}
	w := newWorld(t, func(c *restapi.Config) {
		p.Backend, c.Backend, c.Log = c.Backend, p, slog.New(slog.NewTextHandler(log, nil))
	})
	var none []int
	for want, panics := range map[string]func(){
		"index out of range [3] with length 0": func() { none[3]++ },
		"a value of type *errors.errorString":  func() { panic(errors.New("secret")) },
		"a value of type string":               func() { panic("secret") },
	} {
		p.panics.Store(&panics)
		a := w.want(http.StatusInternalServerError, "its log has the reason", http.MethodGet, "/v1/entities/account/eu-1", "")
		if text := log.text(); !strings.Contains(text, want) || !strings.Contains(text, "/v1/entities/account/eu-1") || !strings.Contains(text, "panic_test.go") || strings.Contains(text+a.body, "secret") {
			t.Errorf("%s: the log has %s", want, text)
		}
	}
}
