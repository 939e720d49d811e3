package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// remark is a line of the ledger of the bank. Exactly one field is set.
type remark struct {
	Asked *deed  `json:",omitempty"`
	Told  *reply `json:",omitempty"`
	Saw   *sight `json:",omitempty"`
	Alarm string `json:",omitempty"`
}

// reply is what a teller learned about a deed. Its times come from the clock of the machine, which
// all processes share.
type reply struct {
	ID         string
	N          int    `json:",omitempty"` // how many bookings the account had, including this one
	Found      []int  `json:",omitempty"` // the same, of each account of an audit
	Refused    string `json:",omitempty"`
	Begun, End int64
}

// sight says that a reader saw the same state of an account for some time. Heard is when the reader
// got the first answer with this state. Asked is when it sent the last question that got this
// answer.
type sight struct {
	Account string
	glance
	Heard, Asked int64
}

func (l ledger) remark(r remark) {
	line, err := json.Marshal(r)
	if err == nil {
		err = l.note(string(line))
	}
	if err != nil {
		panic(err)
	}
}

func (l ledger) remarks(t *testing.T) (all []remark) {
	t.Helper()
	for _, line := range l.bodies(t) {
		var r remark
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// bank has what the tellers and readers of one process share.
type bank struct {
	app      *perdure.App
	ledger   ledger
	prefix   string
	accounts int
	begun    atomic.Int64
	done     atomic.Int64
	stopping chan struct{}
	people   sync.WaitGroup
}

const tellers, readers = 6, 2

// serveBank lets tellers and readers work until the process gets a signal. They do not wait for
// replies that are open at that time.
func serveBank(ctx context.Context, app *perdure.App, l ledger, prefix string, terminate <-chan os.Signal) {
	n, _ := strconv.Atoi(os.Getenv(envAccounts))
	b := &bank{app: app, ledger: l, prefix: prefix, accounts: n, stopping: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range tellers {
		b.people.Go(func() { b.teller(ctx) })
	}
	for range readers {
		b.people.Go(func() { b.reader(ctx) })
	}
	<-terminate
	close(b.stopping)
	finished := make(chan struct{})
	go func() { b.people.Wait(); close(finished) }()

	select {
	case <-finished:
	case <-time.After(time.Second):
	}

	fmt.Println("deeds", b.done.Load())
}

func (b *bank) stopped() bool {
	select {
	case <-b.stopping:
		return true
	default:
		return false
	}
}

func (b *bank) teller(ctx context.Context) {
	for !b.stopped() {
		d := b.invent(b.prefix + strconv.FormatInt(b.begun.Add(1), 10))
		b.ledger.remark(remark{Asked: &d})
		if r, ok := b.insist(ctx, d, b.stopped); ok {
			b.ledger.remark(remark{Told: &r})
			b.done.Add(1)
		}
	}
}

// invent returns a random deed.
func (b *bank) invent(id string) deed {
	d := deed{ID: id, Cents: 1 + rand.IntN(20)}
	among := 1
	switch dice := rand.IntN(100); {
	case dice < 20:
		d.Do, d.Cents = doPost, 5*d.Cents
	case dice < 35:
		d.Do, d.Cents = doPost, -d.Cents
	case dice < 45:
		d.Do = doSend
	case dice < 55:
		d.Do, among = doTell, 2
	case dice < 95:
		d.Do, among = doMove, 2+rand.IntN(3)
	default:
		d.Do, among = doAudit, 3
	}

	for _, i := range rand.Perm(b.accounts)[:among] {
		d.Accounts = append(d.Accounts, accountKey(i))
	}
	if d.Do != doMove {
		return d
	}
	d.Cut = rand.IntN(2) == 0

	switch dice := rand.IntN(100); {
	case dice < 15:
		d.Fate = fateCancel
	case dice < 25:
		d.Fate = fateTerminate
	case dice < 35:
		d.Patience = time.Duration(1+rand.IntN(40)) * time.Millisecond
	}

	if d.Fate != "" {
		d.After = time.Duration(rand.IntN(20)) * time.Millisecond
	}
	if rand.IntN(4) == 0 {
		d.Pause = time.Duration(1+rand.IntN(5)) * time.Millisecond
	}

	return d
}

// insist repeats a deed until the teller has a reply or may give up. Sometimes the teller gives up
// an attempt before the reply can arrive.
func (b *bank) insist(ctx context.Context, d deed, enough func() bool) (reply, bool) {
	for {
		patience := 5 * time.Second
		if rand.IntN(10) == 0 {
			patience = time.Duration(rand.IntN(20)) * time.Millisecond
		}
		r := reply{ID: d.ID, Begun: time.Now().UnixNano()}
		waits, cancel := context.WithTimeout(ctx, patience)
		err := b.do(waits, &d, &r)
		// A server may be the first to say that the time is over.
		late := waits.Err() != nil || errors.Is(err, context.DeadlineExceeded)
		cancel()
		r.End = time.Now().UnixNano()
		var remote *perdure.RemoteError

		switch {
		case err == nil:
			return r, true
		case late, errors.Is(err, perdure.ErrUnavailable), errors.Is(err, perdure.ErrExhausted):
			// The answer is lost, or too many calls wait for code that no process has.
		case errors.As(err, &remote):
			r.Refused = remote.Message
			return r, true
		default:
			b.alarm("%+v: %v", d, err)
		}

		if enough() {
			return r, false
		}

		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return r, false
		}
	}
}

func (b *bank) alarm(format string, args ...any) {
	b.ledger.remark(remark{Alarm: fmt.Sprintf(format, args...)})
}

// do requests a deed. Repeating it has no further effect.
func (b *bank) do(ctx context.Context, d *deed, r *reply) (err error) {
	c := b.app.With(ctx)
	o := order{ID: d.ID, Cents: d.Cents}
	switch d.Do {
	case doPost:
		r.N, err = post.Call(c, d.Accounts[0], o, perdure.RequestID(d.ID))
	case doSend:
		err = post.Send(c, d.Accounts[0], o, perdure.RequestID(d.ID))
	case doTell:
		o.To = d.Accounts[1]
		r.N, err = tell.Call(c, d.Accounts[0], o, perdure.RequestID(d.ID))
	case doAudit:
		r.Found, err = audits.Run(c, *d, perdure.RawKey(d.ID))
	case doMove:
		err = b.move(ctx, d)
	}

	return err
}

// move starts a move, interferes with it as d.Fate says, and waits for its end.
func (b *bank) move(ctx context.Context, d *deed) error {
	c := b.app.With(ctx)
	x, err := moves.Start(c, *d, perdure.RawKey(d.ID))
	if err != nil {
		return err
	}

	if d.Fate != "" {
		select {
		case <-time.After(d.After):
		case <-ctx.Done():
		}
		if d.Fate == fateCancel {
			err = x.Cancel(c, "the teller has changed its mind")
		} else {
			err = b.app.Executions().Terminate(ctx, x, "the teller has waited too long")
		}
		// A conflict means that the move has ended.
		if err != nil && !errors.Is(err, perdure.ErrConflict) {
			return err
		}
	}

	_, err = x.Result(c)
	return err
}

// reader reads accounts all the time, and records a sight as soon as it sees a different state.
func (b *bank) reader(ctx context.Context) {
	last := map[string]sight{}
	flush := func(s sight) {
		if s.Heard != 0 {
			b.ledger.remark(remark{Saw: &s})
		}
	}
	for i := 0; !b.stopped() && ctx.Err() == nil; i++ {
		s := sight{Account: accountKey(rand.IntN(b.accounts)), Asked: time.Now().UnixNano()}
		waits, cancel := context.WithTimeout(ctx, 5*time.Second)
		var err error

		if i%2 == 0 {
			s.glance, err = seen.Call(b.app.With(waits), s.Account, perdure.Void{})
		} else {
			var a account
			a, _, err = accounts.Get(b.app.With(waits), s.Account)
			s.glance = a.glance()
		}

		lost := waits.Err() != nil || errors.Is(err, perdure.ErrUnavailable)
		cancel()
		s.Heard = time.Now().UnixNano()

		switch before := last[s.Account]; {
		case err != nil && !lost:
			b.alarm("reading %s: %v", s.Account, err)
		case err != nil:
		case before.Heard != 0 && before.glance == s.glance:
			before.Asked = s.Asked
			last[s.Account] = before
		default:
			if before.N > s.N || before.N == s.N && before.Heard != 0 {
				b.alarm("a reader saw %+v of %s, and then %+v", before.glance, s.Account, s.glance)
			}
			flush(before)
			last[s.Account] = s
		}

		select {
		case <-time.After(2 * time.Millisecond):
		case <-b.stopping:
		}
	}

	for _, s := range last {
		flush(s)
	}
}
