package chaos_test

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/perdure/perdure"
)

// The bank: accounts are entities, and tellers in every process move money between them in many
// ways. An account records all bookings in order. At the end the test compares every reply, every
// read of an account and every history with these records.

const (
	// envBank makes tellers work in this process until SIGTERM. Its value is the prefix of the ids
	// of their deeds, which are actions such as a transfer.
	envBank     = "PERDURE_CHAOS_BANK"
	envAccounts = "PERDURE_CHAOS_ACCOUNTS" // how many there are
)

// account is the state of an entity.
type account struct {
	Cents int
	Did   []booking
}

// booking is a change of an account.
type booking struct {
	ID    string `json:"i"`
	Cents int    `json:"c,omitempty"`
}

// order is the input of an operation.
type order struct {
	ID    string
	Cents int
	To    string `json:",omitempty"`
}

// glance is one observation of an account.
type glance struct {
	N, Cents int    // the number of bookings, and their sum
	Last     string // ID of the last booking
}

var errPoor = errors.New("insufficient funds")

// post applies a booking. For an order that it must refuse, it first changes the account and then
// fails: no reader may ever see that change.
func (a *account) post(o order) (int, error) {
	a.Cents += o.Cents
	a.Did = append(a.Did, booking{o.ID, o.Cents})
	if a.Cents < 0 {
		return 0, perdure.Permanent(errPoor)
	}
	return len(a.Did), nil
}

func (a *account) glance() glance {
	g := glance{N: len(a.Did), Cents: a.Cents}
	if g.N > 0 {
		g.Last = a.Did[g.N-1].ID
	}
	return g
}

// cents returns the sum of the bookings under an ID, and their number.
func (a *account) cents(id string) (sum, times int) {
	for _, b := range a.Did {
		if b.ID == id {
			sum, times = sum+b.Cents, times+1
		}
	}
	return sum, times
}

var (
	accounts = perdure.NewEntity[account]("account")
	post     = perdure.NewOperation(accounts, "post", func(_ perdure.EntityCtx, a *account, o order) (int, error) { return a.post(o) })
	// tell takes an amount from this account, and sends it to another account.
	tell = perdure.NewOperation(accounts, "tell", func(ctx perdure.EntityCtx, a *account, o order) (int, error) {
		// The engine does not send this if a later statement fails.
		if err := post.Send(ctx, o.To, order{ID: inID(o.ID), Cents: o.Cents}); err != nil {
			return 0, err
		}
		return a.post(order{ID: o.ID, Cents: -o.Cents})
	})
	// undo books the opposite of the bookings under an ID, if there are any.
	undo = perdure.NewOperation(accounts, "undo", func(_ perdure.EntityCtx, a *account, o order) (int, error) {
		if cents, times := a.cents(o.ID); times > 0 {
			a.Cents -= cents
			a.Did = append(a.Did, booking{undoID(o.ID), -cents})
		}
		return len(a.Did), nil
	})
	look   = perdure.NewOperation(accounts, "look", func(_ perdure.EntityCtx, a *account, _ perdure.Void) (int, error) { return len(a.Did), nil })
	seen   = perdure.NewView(accounts, "seen", func(a account, _ perdure.Void) (glance, error) { return a.glance(), nil })
	moves  = perdure.NewWorkflow("move", move)
	audits = perdure.NewWorkflow("audit", func(ctx perdure.WorkflowCtx, d deed) (found []int, err error) {
		err = ctx.Lock(d.locks(), func(ctx perdure.WorkflowCtx) error {
			for _, a := range d.Accounts {
				n, err := look.Call(ctx, a, perdure.Void{})
				if err != nil {
					return err
				}
				found = append(found, n)
			}
			return nil
		})
		return found, err
	})
)

func bankDefinitions() perdure.Group { return perdure.Group{accounts, moves, audits} }

func inID(id string) string            { return id + "/in" }
func undoID(id string) string          { return id + "/undo" }
func shareID(id string, i int) string  { return id + "/" + strconv.Itoa(i) }
func stampID(id string, i int) string  { return id + "/stamp" + strconv.Itoa(i) }
func accountKey(i int) string          { return "a" + strconv.Itoa(i) }
func (d *deed) locks() perdure.LockSet { return refs(d.Accounts) }

func refs(keys []string) (set perdure.LockSet) {
	for _, k := range keys {
		set = append(set, accounts.Ref(k))
	}
	return set
}

// Actions of tellers.
const (
	doPost = "post" // a call
	doSend = "send" // a call whose sender does not wait for the reply
	doTell = "tell" // a call of an account, which calls another account
	// doMove is a workflow that locks accounts, takes from the first and gives to the others.
	doMove  = "move"
	doAudit = "audit" // a workflow that locks accounts and looks at them
)

// deed is one action of a teller. The teller writes the deed to the ledger before it acts, so that
// another teller can repeat the deed if the process dies.
type deed struct {
	ID       string
	Do       string
	Accounts []string
	Cents    int
	// These fields belong to moves: how another caller interferes with the move and after what
	// delay, its timeout, its pause between steps, and whether a cancellation also ends its calls.
	Fate     string        `json:",omitempty"`
	After    time.Duration `json:",omitempty"`
	Patience time.Duration `json:",omitempty"`
	Pause    time.Duration `json:",omitempty"`
	Cut      bool          `json:",omitempty"`
}

const (
	fateCancel    = "cancel"
	fateTerminate = "terminate"
)

// share returns what a move books at account i.
func (d *deed) share(i int) int {
	if i == 0 {
		return -d.Cents * (len(d.Accounts) - 1)
	}
	return d.Cents
}

// move takes from the first account and gives to the others while all are locked. If the move ends
// early, it undoes every booking that it has made or may have made.
func move(ctx perdure.WorkflowCtx, d deed) (int, error) {
	if d.Patience > 0 {
		ctx = ctx.WithTimeout(d.Patience)
	}
	return len(d.Accounts), ctx.Lock(d.locks(), func(ctx perdure.WorkflowCtx) error {
		calls := ctx
		if !d.Cut {
			calls = ctx.Detached()
		}
		begun := 0

		err := func() error {
			for i, a := range d.Accounts {
				if err := ctx.Err(); err != nil {
					return err
				}
				begun++
				if _, err := post.Call(calls, a, order{ID: shareID(d.ID, i), Cents: d.share(i)}); err != nil {
					return err
				}
				if d.Pause > 0 {
					if err := ctx.Sleep(d.Pause); err != nil {
						return err
					}
				}
			}
			return nil
		}()

		calls = ctx.Detached()
		for i, a := range d.Accounts[:begun] {
			var failed error
			if err == nil {
				_, failed = post.Call(calls, a, order{ID: stampID(d.ID, i)})
			} else {
				_, failed = undo.Call(calls, a, order{ID: shareID(d.ID, i)})
			}
			if failed != nil {
				return fmt.Errorf("the move cannot be ended in order: %w", failed)
			}
		}

		return err
	})
}
