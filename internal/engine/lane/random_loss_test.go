package lane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// disappears lets a worker disappear with its calls. Some of them may not have reached the worker.
func (v *village) disappears(t *rapid.T) {
	w := lane.WorkerID(rapid.IntRange(1, 3).Draw(t, "worker"))
	var unseen []uint64
	for _, o := range v.operations {
		if o.Worker == w && rapid.Bool().Draw(t, "unseen") {
			unseen = append(unseen, o.Operations.Generation)
		}
	}
	v.l.Lose(v.now, w, unseen)
	v.take()
	v.operations = slices.DeleteFunc(v.operations, func(o lane.OperateCall) bool { return o.Worker == w })
	if rapid.Bool().Draw(t, "another comes") {
		v.joinEntities(w)
	}
}

// operator returns an action that lists calls, and drops, skips or interrupts calls of earlier
// lists.
func (v *village) operator() func(*rapid.T) {
	lists := map[string][]string{} // tokens of lists, by entity
	return func(t *rapid.T) {
		in, k := v.draw(t, "m")
		m := model.Message{Kind: model.MessageMailbox, Name: model.MailboxList, To: ledger(k)}
		if rapid.Bool().Draw(t, "list") {
			lists[k] = append(lists[k], in)
			v.send(m, in)
			return
		}

		var ids []string
		for _, token := range lists[k] {
			if a, ok := v.answers[token]; ok && a.Err == nil {
				calls, err := model.DecodeCalls(a.Answer.Output)
				if err != nil {
					t.Fatal(err)
				}
				for i := range calls.Calls {
					ids = append(ids, calls.Calls[i].ID)
				}
			}
		}
		if len(ids) > 0 {
			m.Name = rapid.SampledFrom([]string{model.MailboxDrop, model.MailboxSkip, model.MailboxInterrupt}).Draw(t, "order")
			m.ID, m.RequestID = rapid.SampledFrom(ids).Draw(t, "call"), fmt.Sprint("r", in)
			v.send(m, in)
		}
	}
}

// Workers disappear with calls, and operators drop and skip calls, while everything else happens
// too. No call is left, no call is made twice, and no caller waits in the end.
func TestRandomLosses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := newVillage(t)
		machinery := v.machinery()
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {}, "client": v.clients(), "run": v.runs(), "go on": machinery, "and on": machinery, "and on and on": machinery,
			"trouble": v.trouble(), "operator": v.operator(), "loss": v.disappears, "another loss": v.disappears,
		})

		v.joinEntities(4)
		v.join(4)
		v.acquireAgain()
		v.finish()
		v.rest()
		for _, k := range ledgers {
			if n := len(v.mailbox(ledger(k))) + len(v.mailbox(echo(k))); n > 0 || v.isLocked(ledger(k)) {
				t.Errorf("%d calls of %s are left, or it is locked", n, k)
			}
		}
		for in, n := range v.made() {
			if n != 1 {
				t.Errorf("%s was made %d times", in, n)
			}
		}

		v.wantFreeSlots()
		v.leave(1)
		v.pass(5 * time.Minute)
		if n, waits, bytes := v.l.Entries(), v.l.Waiters(), v.l.PendingBytes(); n+waits+bytes != 0 {
			t.Errorf("%d entries and %d bytes are left in memory, and callers wait for %d addresses", n, bytes, waits)
		}
	})
}

// made returns how often the state of an entity has each input.
func (v *village) made() map[string]int {
	made := map[string]int{}
	for _, k := range ledgers {
		for in := range strings.SplitSeq(v.storedState(ledger(k)), ";") {
			made[in]++
		}
	}
	delete(made, "")
	return made
}
