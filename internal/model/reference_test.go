package model_test

import (
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// For every code of a reason that names something, References returns what it names.
func TestReferences(t *testing.T) {
	t.Parallel()
	at := func(kind, typ, key string) model.Reference {
		return model.Reference{Kind: kind, Address: model.Address{Tenant: "acme", Type: typ, Key: key}}
	}
	named := func(kind, name string) model.Reference { return model.Reference{Kind: kind, Name: name} }

	about := map[model.ReasonCode][]model.Reference{}
	for _, c := range []struct {
		code         model.ReasonCode
		name, detail string
		want         []model.Reference
	}{
		{model.WaitChild, "order/4/2", "", []model.Reference{at(model.RefExecution, "order", "4/2")}},
		{model.WaitAnswer, "entity:account/1", "", []model.Reference{at(model.RefEntity, "entity:account", "1")}},
		{model.WaitAnswer, "service:mail/1", "", []model.Reference{at(model.RefEntity, "service:mail", "1")}},
		{model.WaitAnswer, "order/1", "", []model.Reference{at(model.RefExecution, "order", "1")}},
		{model.WaitLock, "account/1", "order/7", []model.Reference{at(model.RefEntity, "entity:account", "1")}},
		{model.WaitMailbox, "account/1", "", []model.Reference{at(model.RefEntity, "entity:account", "1")}},
		{model.WaitMailbox, "service:mail/1", "", []model.Reference{at(model.RefEntity, "service:mail", "1")}},
		{model.WaitPermit, "smtp", "", []model.Reference{named(model.RefLimit, "smtp")}},
		{model.WaitRate, "smtp", "", []model.Reference{named(model.RefLimit, "smtp")}},
		{model.WaitBreaker, "bank", "", []model.Reference{named(model.RefBreaker, "bank")}},
		{model.WaitLine, "mails", "", []model.Reference{named(model.RefQueue, "mails")}},
		{model.WaitPaused, "mails", "", []model.Reference{named(model.RefQueue, "mails")}},
		{model.WaitPaused, "", "", nil},
		{model.WaitTask, "pay", "mails", []model.Reference{named(model.RefStep, "pay"), named(model.RefQueue, "mails")}},
		{model.WaitWorker, "order", "", []model.Reference{named(model.RefCode, "order")}},
		{model.WaitElsewhere, "order", "", []model.Reference{named(model.RefCode, "order")}},
		{model.WaitSlot, "order", "", []model.Reference{named(model.RefCode, "order")}},
		{model.WaitOwner, "3", "", []model.Reference{named(model.RefShard, "3")}},
		{model.WaitSignal, "paid", "", []model.Reference{named(model.RefSignal, "paid")}},
		{model.WaitPromise, "paid", "", []model.Reference{named(model.RefPromise, "paid")}},
		{model.WaitHandler, "add", "", []model.Reference{named(model.RefUpdate, "add")}},
		{model.WaitStep, "pay", "", []model.Reference{named(model.RefStep, "pay")}},
		{model.WaitRetry, "pay", "", []model.Reference{named(model.RefStep, "pay")}},
		{model.WaitChild, "no slash", "", nil},
	} {
		r := model.Reason{Code: c.code, Name: c.name, Detail: c.detail}
		if got := r.References("acme"); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %+v, want %+v", c.code, c.name, got, c.want)
		}
		about[c.code] = c.want
	}

	// Reasons with the other codes are about the execution itself, or about a time.
	none := []model.ReasonCode{
		model.WaitTimer, model.WaitTurn, model.WaitNothing, model.WaitMismatch, model.WaitType, model.WaitPoison, model.WaitCorrupt, model.WaitNewer,
		model.WaitLimit, model.WaitStuck, model.WaitUpdate, model.WaitLarge, model.WaitCycle, model.WaitStart,
	}
	for _, code := range model.ReasonCodes() {
		if _, tried := about[code]; tried == slices.Contains(none, code) {
			t.Errorf("%s is not in exactly one of the two lists of this test", code)
		}
	}
}
