package perdure

import (
	"context"
	"encoding/hex"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/userdb"
)

// slowMailer does not answer messages to one key.
type slowMailer struct {
	api.Mailer
	slow string
}

func (*slowMailer) RequestRetention() time.Duration { return 24 * time.Hour }

func (m *slowMailer) Deliver(ctx context.Context, to *model.Message) error {
	if to.To.Key != m.slow {
		return nil
	}
	<-ctx.Done()
	return fault.New(fault.Timeout, "accepted, but not answered yet")
}

// The relay postpones a message that the engine does not answer in time, because every later page
// with this message would take as long. It skips later messages to the same target and delivers all
// other messages. If the app closes during a delivery, the relay gives no verdict.
func TestMessageWithoutAnAnswerIsPutOff(t *testing.T) {
	t.Parallel()
	message := func(id, key string) userdb.OutboxMessage {
		m := model.Message{Kind: model.MessageSignal, To: model.Address{Tenant: model.DefaultTenant, Type: "w", Key: key}}
		return userdb.OutboxMessage{ID: id, Execution: "w/" + key, Body: hex.EncodeToString(model.AppendMessage(nil, &m))}
	}
	r := &relay{mailer: &slowMailer{slow: "k"}, host: &host{tenant: model.DefaultTenant, logger: silent}}
	messages := []userdb.OutboxMessage{message("1", "k"), message("2", "k"), message("3", "other")}
	deliver := func(ctx context.Context) []userdb.Verdict {
		got := r.deliver(ctx, messages)
		slices.SortFunc(got, func(a, b userdb.Verdict) int { return int(a.ID[0]) - int(b.ID[0]) })
		return got
	}

	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), relayWithin)
		defer cancel()
		want := []userdb.Verdict{{ID: "1", Later: true}, {ID: "2", Untried: true}, {ID: "3"}}
		if got := deliver(ctx); !slices.Equal(got, want) {
			t.Errorf("verdicts %+v, want %+v", got, want)
		}

		closing, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		if got := deliver(closing); slices.ContainsFunc(got, func(v userdb.Verdict) bool { return v.ID == "1" }) {
			t.Errorf("verdicts %+v of an app that closes", got)
		}
	})
}

// A relay delivers no messages for other tenants.
func TestRelayStaysInItsTenant(t *testing.T) {
	t.Parallel()
	m := model.Message{Kind: model.MessageSignal, To: model.Address{Tenant: "acme", Type: "w", Key: "k"}}
	letter := userdb.OutboxMessage{ID: "1", Execution: "w/k", Body: hex.EncodeToString(model.AppendMessage(nil, &m))}
	for tenant, refused := range map[string]bool{"acme": false, model.DefaultTenant: true} {
		r := &relay{mailer: &slowMailer{}, host: &host{tenant: tenant, logger: silent}}
		if got := r.deliver(t.Context(), []userdb.OutboxMessage{letter}); len(got) != 1 || (got[0].Refused != "") != refused {
			t.Errorf("a relay of tenant %s says %+v", tenant, got)
		}
	}
}
