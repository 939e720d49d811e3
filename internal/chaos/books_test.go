package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// books has the content of the ledger and of the store.
type books struct {
	t     *testing.T
	bank  *bank
	deeds map[string]deed
	told  map[string]reply
	saw   []sight

	accounts map[string]account
	at       map[string]map[string][]int // positions of the bookings of a deed, by deed and account
	outcome  map[string]perdure.Status   // how moves and audits ended, by id
}

// close repeats every deed without a recorded reply, waits until nothing changes, and compares the
// ledger, the store and the histories.
func (f *bankFire) close(url string) {
	f.t.Helper()
	t := f.t
	app, err := embedded.Config{AllowUnsafe: true, LeaseTTL: bankLease}.Open(t.Context(), url, bankDefinitions())
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()

	b := &books{
		t: t, bank: &bank{app: app, ledger: f.ledger, accounts: f.accounts}, deeds: map[string]deed{}, told: map[string]reply{},
		at: map[string]map[string][]int{}, outcome: map[string]perdure.Status{},
	}

	b.read()
	lost := b.finish()
	b.settle()
	b.repeat()
	b.settle()
	if b.read(); t.Failed() {
		return
	}

	b.checkAccounts()
	b.checkDeeds()
	b.checkHistories(url)
	b.checkSections()
	b.checkAudits()
	b.checkSights()

	count := map[string]int{}
	for _, d := range b.deeds {
		word := d.Do
		if s := b.outcome[d.ID]; s != "" {
			word += " " + string(s)
		}
		count[word]++
	}

	t.Logf("struck %v; %v; %d deeds were repeated at the end; %d observations", f.struck, count, lost, len(b.saw))
}

func (b *books) read() {
	b.t.Helper()
	b.saw = nil
	for _, r := range b.bank.ledger.remarks(b.t) {
		switch {
		case r.Asked != nil:
			b.deeds[r.Asked.ID] = *r.Asked
		case r.Told != nil:
			b.told[r.Told.ID] = *r.Told
		case r.Saw != nil:
			b.saw = append(b.saw, *r.Saw)
		default:
			b.t.Errorf("alarm: %s", r.Alarm)
		}
	}
}

// all runs fn for many deeds at the same time.
func all(t *testing.T, deeds []deed, fn func(ctx context.Context, d deed)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	gate := make(chan struct{}, 32)
	for _, d := range deeds {
		gate <- struct{}{}
		wg.Go(func() { fn(ctx, d); <-gate })
	}
	wg.Wait()
}

// finish repeats every deed without a recorded reply. It returns the number of these deeds.
func (b *books) finish() int {
	b.t.Helper()
	var open []deed
	for id, d := range b.deeds {
		if _, ok := b.told[id]; !ok {
			open = append(open, d)
		}
	}

	all(b.t, open, func(ctx context.Context, d deed) {
		r, ok := b.bank.insist(ctx, d, func() bool { return false })
		if !ok {
			b.t.Errorf("%+v gets no answer: %s", d, b.explain(d))
			return
		}
		b.bank.ledger.remark(remark{Told: &r})
	})

	b.read()
	return len(open)
}

// explain returns why an execution does not continue.
func (b *books) explain(d deed) string {
	var text strings.Builder
	if d.Do == doMove || d.Do == doAudit {
		info, err := b.bank.app.Executions().Describe(b.t.Context(), perdure.Ref{Workflow: d.Do, Key: d.ID})
		fmt.Fprintln(&text, info.Status, info.Reason, err)
	}
	for _, a := range d.Accounts {
		info, err := b.bank.app.Entities().Describe(b.t.Context(), accounts.Ref(a))
		fmt.Fprintf(&text, "%s: locked by %s, %d wait, locks %v: %s, %v\n", a, info.LockedBy, info.Waiting, info.Waiters, info.Reason, err)
	}
	return text.String()
}

// repeat repeats every answered request. The reply must be the same, and nothing may change.
func (b *books) repeat() {
	b.t.Helper()
	var calls []deed
	for _, d := range b.deeds {
		if d.Do == doPost || d.Do == doTell {
			calls = append(calls, d)
		}
	}
	all(b.t, calls, func(ctx context.Context, d deed) {
		first := b.told[d.ID]
		again, ok := b.bank.insist(ctx, d, func() bool { return false })
		if !ok || again.N != first.N || again.Refused != first.Refused {
			b.t.Errorf("%+v was answered with %+v, and with %+v when it was asked again", d, first, again)
		}
	})
}

// settle waits until no execution is open, no account is locked or has waiting calls, and every
// message has arrived. Then it reads the accounts.
func (b *books) settle() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for {
		b.load(ctx)
		moving := b.moving(ctx)
		if moving == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("the bank is still changing: %s", moving)
		}
	}
}

// load reads all accounts.
func (b *books) load(ctx context.Context) {
	b.t.Helper()
	b.accounts, b.at = map[string]account{}, map[string]map[string][]int{}
	for info, err := range b.bank.app.Entities().List(ctx, "account", "") {
		if err != nil {
			b.t.Fatal(err)
		}
		var a account

		if info.State != nil {
			if err := json.Unmarshal(info.State, &a); err != nil {
				b.t.Fatal(err)
			}
		}

		b.accounts[info.Ref.Key] = a
		for i, booked := range a.Did {
			id, _, _ := strings.Cut(booked.ID, "/")
			if b.at[id] == nil {
				b.at[id] = map[string][]int{}
			}
			b.at[id][info.Ref.Key] = append(b.at[id][info.Ref.Key], i)
		}
	}
}

// moving returns what is still changing.
func (b *books) moving(ctx context.Context) string {
	for info, err := range b.bank.app.Executions().List(ctx, `status = "open"`) {
		return fmt.Sprint(info.Ref, " is open: ", info.Reason, " ", err)
	}
	for info, err := range b.bank.app.Locks().List(ctx, "") {
		return fmt.Sprint(info.Ref, " is locked by ", info.LockedBy, " ", err)
	}

	for key := range b.accounts {
		info, err := b.bank.app.Entities().Describe(ctx, accounts.Ref(key))
		if err != nil || info.Waiting > 0 {
			return fmt.Sprintf("%d wait for %s: %s %v", info.Waiting, key, info.Reason, err)
		}
	}

	for id, d := range b.deeds {
		switch {
		case b.told[id].Refused != "":
		case d.Do == doSend && b.times(d.Accounts[0], id) == 0:
			return fmt.Sprintf("%+v has not arrived", d)
		case d.Do == doTell && b.times(d.Accounts[1], inID(id)) == 0:
			return fmt.Sprintf("%+v has not arrived", d)
		}
	}

	return ""
}

// times returns how many bookings an account has under an ID.
func (b *books) times(key, id string) (n int) {
	deed, _, _ := strings.Cut(id, "/")
	for _, i := range b.at[deed][key] {
		if b.accounts[key].Did[i].ID == id {
			n++
		}
	}
	return n
}

// checkAccounts checks that no account is or was overdrawn, that each balance is the sum of its
// bookings, and that each booking belongs to a deed.
func (b *books) checkAccounts() {
	b.t.Helper()
	for key, a := range b.accounts {
		sum := 0
		for i, booked := range a.Did {
			if sum += booked.Cents; sum < 0 {
				b.t.Errorf("%s was overdrawn by booking %d: %+v", key, i, booked)
			}
		}
		if sum != a.Cents {
			b.t.Errorf("%s has %d cents, and its bookings make %d", key, a.Cents, sum)
		}
	}

	for id := range b.at {
		if _, ok := b.deeds[id]; !ok {
			b.t.Errorf("the account has booking %s, which no teller ordered", id)
		}
	}
}

// checkDeeds checks that every confirmed deed was done once, that no refused deed was done, and
// that the sum of all accounts is right.
func (b *books) checkDeeds() {
	b.t.Helper()
	sum, want := 0, 0
	for _, a := range b.accounts {
		sum += a.Cents
	}

	for id, d := range b.deeds {
		r := b.told[id]
		expect := map[string]map[string]int{} // by account and booking
		for _, a := range d.Accounts {
			expect[a] = map[string]int{}
		}
		done := r.Refused == ""
		if !done && d.Do != doMove && r.Refused != errPoor.Error() {
			b.t.Errorf("%+v is answered with %q", d, r.Refused)
		}

		switch {
		case d.Do == doMove: // see checkHistories
			for key, at := range b.at[id] {
				for _, i := range at {
					want += b.accounts[key].Did[i].Cents
				}
			}
			continue
		case d.Do == doAudit || !done:
		case d.Do == doTell:
			expect[d.Accounts[0]][id], expect[d.Accounts[1]][inID(id)] = -d.Cents, d.Cents
		default:
			expect[d.Accounts[0]][id] = d.Cents
			want += d.Cents
		}

		b.checkBookings(&d, expect)
		if done && (d.Do == doPost || d.Do == doTell) {
			if did := b.accounts[d.Accounts[0]].Did; r.N < 1 || r.N > len(did) || did[r.N-1].ID != id {
				b.t.Errorf("%+v is answered with %+v, and is not at that place", d, r)
			}
		}
	}

	if sum != want {
		b.t.Errorf("all accounts together have %d cents, want %d", sum, want)
	}
}

// checkBookings checks that a deed made exactly these bookings.
func (b *books) checkBookings(d *deed, expect map[string]map[string]int) {
	b.t.Helper()
	got := map[string]map[string]int{}
	for _, a := range d.Accounts {
		got[a] = map[string]int{}
	}

	for key, at := range b.at[d.ID] {
		for _, i := range at {
			booked := b.accounts[key].Did[i]
			if _, twice := got[key][booked.ID]; twice || got[key] == nil {
				b.t.Errorf("%+v: %+v is booked twice, or at the wrong account %s", d, booked, key)
				continue
			}
			got[key][booked.ID] = booked.Cents
		}
	}

	if !maps.EqualFunc(got, expect, maps.Equal[map[string]int]) {
		b.t.Errorf("%+v is answered with %+v and has booked %v, want %v", d, b.told[d.ID], got, expect)
	}
}

// checkHistories checks that each move made the bookings of its history: every booking that was
// confirmed, and only bookings that the move sent. A completed move has all its bookings. A move
// that did not complete has no bookings in the end, unless it was terminated.
func (b *books) checkHistories(url string) {
	b.t.Helper()
	ctx := b.t.Context()
	nd, err := node.Open(ctx, node.Config{URL: url, ReadOnly: true})
	if err != nil {
		b.t.Fatal(err)
	}
	defer nd.Close()

	for id, d := range b.deeds {
		if d.Do != doMove && d.Do != doAudit {
			continue
		}
		target := api.Target{Address: model.Address{Tenant: model.DefaultTenant, Type: d.Do, Key: id}}
		info, err := nd.Backend().Describe(ctx, target)
		if err != nil {
			b.t.Errorf("%+v: %v", d, err)
			continue
		}

		b.outcome[id] = perdure.Status(info.Outcome.Status.String())
		if d.Do == doAudit {
			if b.outcome[id] != perdure.Completed {
				b.t.Errorf("%+v is %s: %v", d, b.outcome[id], info.Outcome.Failure)
			}
			continue
		}

		page, err := nd.Backend().History(ctx, api.HistoryRequest{Target: target, After: -1})
		if err != nil {
			b.t.Fatal(err)
		}
		b.checkMove(&d, info.Outcome, page.Events)
	}
}

func (b *books) checkMove(d *deed, o model.Outcome, events []model.Event) {
	b.t.Helper()
	booked, sum := b.ofHistory(d, events), 0
	for _, at := range booked {
		for _, cents := range at {
			sum += cents
		}
	}

	b.checkBookings(d, booked)
	switch {
	case o.Status == model.Terminated && d.Fate == fateTerminate:
	case sum != 0:
		b.t.Errorf("%+v is %s and has made %d cents: %v", d, o.Status, sum, booked)
	case o.Status == model.Completed:
	case o.Status == model.Canceled && d.Fate == fateCancel:
	case o.Status == model.Failed && (o.Failure.Message == errPoor.Error() || d.Patience > 0 && o.Failure.Kind == model.FailureTimeout):
	default:
		b.t.Errorf("%+v is %s: %v", d, o.Status, o.Failure)
	}
}

// ofHistory returns the bookings that a move must have made according to its history, by account
// and booking. A move may have ended before its history recorded the outcome of a call. For such a
// call ofHistory returns the bookings that the account has.
func (b *books) ofHistory(d *deed, events []model.Event) map[string]map[string]int {
	type call struct {
		i              int // number of the account
		id             string
		cents          int
		heard, refused bool
	}

	var calls []*call
	by, posts := map[string]*call{}, map[string]int{}
	for _, e := range events {
		switch e.Kind {
		case model.EventSent:
			i := slices.Index(d.Accounts, e.Target.Key)
			c := &call{i: i, id: shareID(d.ID, i), cents: d.share(i)}
			if e.Name == "undo" {
				c.id, c.cents = undoID(c.id), -c.cents
			} else if posts[e.Target.Key]++; posts[e.Target.Key] > 1 {
				c.id, c.cents = stampID(d.ID, i), 0
			}
			calls, by[e.ID] = append(calls, c), c
		case model.EventAnswered:
			if c := by[e.ID]; c != nil {
				c.heard, c.refused = true, e.Failure != nil
			}
		default:
		}
	}

	booked := map[string]map[string]int{}
	for _, a := range d.Accounts {
		booked[a] = map[string]int{}
	}

	for _, c := range calls {
		at := booked[d.Accounts[c.i]]
		_, shared := at[shareID(d.ID, c.i)]
		switch {
		case c.refused, !c.heard && b.times(d.Accounts[c.i], c.id) == 0:
		case c.id == undoID(shareID(d.ID, c.i)) && !shared: // there was nothing to undo
		default:
			at[c.id] = c.cents
		}
	}

	return booked
}

// checkSections checks that no other booking is between two bookings of a move at an account,
// because the move had locked the account.
func (b *books) checkSections() {
	b.t.Helper()
	for id, d := range b.deeds {
		if d.Do != doMove {
			continue
		}
		for key, at := range b.at[id] {
			for i, place := range at[1:] {
				if place != at[i]+1 {
					b.t.Errorf("%s: %s was locked by %s, and yet others came between: %v", key, key, id, b.accounts[key].Did[at[i]:place+1])
				}
			}
		}
	}
}

// checkAudits checks the audits, which lock several accounts. An audit must see all bookings of a
// move or none, unless the move was terminated.
func (b *books) checkAudits() {
	b.t.Helper()
	for id, d := range b.deeds {
		if d.Do != doAudit {
			continue
		}
		found := map[string]int{}
		for i, n := range b.told[id].Found {
			found[d.Accounts[i]] = n
		}

		if len(found) != len(d.Accounts) {
			b.t.Errorf("%+v is answered with %+v", d, b.told[id])
			continue
		}

		for moved, at := range b.at {
			if b.deeds[moved].Do != doMove || b.outcome[moved] == perdure.Terminated {
				continue
			}

			before, after := 0, 0
			for key, places := range at {
				n, looked := found[key]
				for _, i := range places {
					if looked && i < n {
						before++
					} else if looked {
						after++
					}
				}
			}

			if before > 0 && after > 0 {
				b.t.Errorf("%s looked at %v in the middle of %s", id, found, moved)
			}
		}
	}
}

// checkSights checks that every observation was committed, and that reads never go backwards: a
// reader must see at least the state that a caller had seen, or that a reply had confirmed, before
// the reader asked.
func (b *books) checkSights() {
	b.t.Helper()
	type moment struct {
		at    int64
		asked bool // true for the start of a question, false for the arrival of a reply
		n     int
		who   any
	}

	moments := map[string][]moment{}
	for _, s := range b.saw {
		a := b.accounts[s.Account]
		sum := 0
		for _, booked := range a.Did[:min(s.N, len(a.Did))] {
			sum += booked.Cents
		}
		if s.N > len(a.Did) || sum != s.Cents || s.N > 0 && a.Did[s.N-1].ID != s.Last {
			b.t.Errorf("a reader saw %+v, which was never committed", s)
		}
		moments[s.Account] = append(moments[s.Account], moment{s.Heard, false, s.N, s}, moment{s.Asked, true, s.N, s})
	}

	for id, r := range b.told {
		if d := b.deeds[id]; r.N > 0 {
			moments[d.Accounts[0]] = append(moments[d.Accounts[0]], moment{r.End, false, r.N, r})
		}
	}

	for key, ms := range moments {
		slices.SortFunc(ms, func(x, y moment) int { return int(x.at - y.at) })
		most := moment{}
		for _, m := range ms {
			if m.asked && m.n < most.n {
				b.t.Errorf("a reader saw an old state of %s: %+v, after %+v", key, m.who, most.who)
			} else if !m.asked && m.n > most.n {
				most = m
			}
		}
	}
}
