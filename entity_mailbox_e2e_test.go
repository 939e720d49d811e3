package perdure_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// The mailbox of a key has a limit for the number of calls and one for their bytes, and each limit
// has its own error. A list shows all calls of a long mailbox in order.
func TestBoundedMailbox(t *testing.T) {
	t.Parallel()
	release, begun := make(chan struct{}), make(chan struct{})
	notes := perdure.NewEntity[int]("note", perdure.MailboxSize(1500), perdure.MailboxBytes(1<<20), perdure.OperationTimeout(time.Hour))
	add := perdure.NewOperation(notes, "add", func(_ perdure.EntityCtx, n *int, text string) (int, error) {
		if text == "wait" {
			begun <- struct{}{}
			<-release
		}
		*n++
		return *n, nil
	})
	app := embedded.MustOpen("memory:", notes)
	defer app.Close()
	c := app.With(t.Context())

	if err := add.Send(c, "few", "wait"); err != nil {
		t.Fatal(err)
	}
	<-begun
	for i := range 1500 {
		if err := add.Send(c, "few", fmt.Sprint(i)); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := add.Send(c, "few", "more"); !errors.Is(err, perdure.ErrExhausted) || !strings.Contains(err.Error(), "1500 calls (MailboxSize)") {
		t.Errorf("a call too many: %v", err)
	}

	listed := 0
	for call, err := range app.Mailboxes().List(t.Context(), notes.Ref("few")) {
		if listed++; err != nil || call.Position != listed || call.Running != (listed == 1) {
			t.Fatalf("call %d: %+v, %v", listed, call, err)
		}
	}
	if listed != 1501 {
		t.Errorf("%d calls are listed, want 1501", listed)
	}

	// Two calls of this size fit, and a third does not.
	if err := add.Send(c, "large", "wait"); err != nil {
		t.Fatal(err)
	}
	<-begun
	text := strings.Repeat("x", 400_000)
	if err := errors.Join(add.Send(c, "large", text), add.Send(c, "large", text)); err != nil {
		t.Fatal(err)
	}
	if err := add.Send(c, "large", text); !errors.Is(err, perdure.ErrExhausted) || !strings.Contains(err.Error(), "1048576 bytes (MailboxBytes)") {
		t.Errorf("a call with too many bytes: %v", err)
	}

	// The other calls run after the first one.
	close(release)
	if n, err := add.Call(c, "large", "last"); err != nil || n != 4 {
		t.Errorf("the last call returns %d, %v", n, err)
	}
}
