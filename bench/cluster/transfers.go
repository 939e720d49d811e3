package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/perdure/perdure"
)

const (
	accounts = 24
	funds    = 1000 // of each account at the start
	// twoTransfer is the least rate of two processes, in percent of the rate of one process.
	twoTransfer = 80.0
)

// crowds are the total numbers of clients that transfer money.
var crowds = []int{1, 100, 1000}

// balance is the state of an account. Its balance may be negative.
type balance struct {
	Cents int
	Calls int // how many calls have changed it
}

// payment is a transfer between two accounts.
type payment struct {
	From, To string
	Cents    int
}

var (
	account = perdure.NewEntity[balance]("account")

	withdraw = perdure.NewOperation(account, "withdraw", func(_ perdure.EntityCtx, b *balance, cents int) (int, error) {
		b.Cents -= cents
		b.Calls++
		return b.Cents, nil
	})

	deposit = perdure.NewOperation(account, "deposit", func(_ perdure.EntityCtx, b *balance, cents int) (int, error) {
		b.Cents += cents
		b.Calls++
		return b.Cents, nil
	})

	transfer = perdure.NewWorkflow("transfer", func(ctx perdure.WorkflowCtx, p payment) (perdure.Void, error) {
		both := perdure.LockSet{account.Ref(p.From), account.Ref(p.To)}
		return perdure.Void{}, ctx.Lock(both, func(ctx perdure.WorkflowCtx) error {
			if _, err := withdraw.Call(ctx, p.From, p.Cents); err != nil {
				return err
			}
			_, err := deposit.Call(ctx, p.To, p.Cents)
			return err
		})
	})
)

// transfers measures locked transfers on one process and on two, with the same number of clients in
// total.
func (b *bench) transfers(ctx context.Context) error {
	for _, clients := range crowds {
		crowd := count(clients, "client", "clients")
		var rates [2]float64
		for i := range rates {
			o, err := b.transfersOf(ctx, i+1, clients)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", count(i+1, "process", "processes"), crowd, err)
			}
			rates[i] = b.rate(o)
			fmt.Printf("%s, %s: %.0f transfers/s, p50 %s, p99 %s, %.3f ms CPU of the processes per transfer\n",
				count(i+1, "process", "processes"), crowd, rates[i], milliseconds(o.P50), milliseconds(o.P99), o.cpuEach())
			if o.Done < int64(clients) {
				fmt.Println("    fewer transfers than clients: use a longer -duration")
			}
		}

		share := 100 * rates[1] / rates[0]
		fmt.Printf("    %.0f %% of one process\n", share)
		b.verdict.atLeast("transfers: rate of 2 processes against one, "+crowd, twoTransfer, " %", share)
	}
	return nil
}

// transfersOf measures n processes, and checks the balances.
func (b *bench) transfersOf(ctx context.Context, n, clients int) (o outcome, err error) {
	c, err := openCluster(ctx, b.settings(), n)
	if err != nil {
		return o, err
	}
	defer c.close()
	if _, err := ask[perdure.Void](c.processes[0], "fund", funds); err != nil {
		return o, err
	}

	all, err := askAll[outcome](c.processes, "load", func(i int) any {
		share := clients / n
		if i < clients%n {
			share++
		}
		return load{Transfers: true, Clients: share, Warm: b.warmUp(), Duration: b.duration}
	})
	if err != nil {
		return o, err
	}
	o = sum(all)
	return o, c.checkBalances(o.All)
}

// checkBalances asks every process for the balances. Each transfer must have had its effect on two
// accounts, and no money may be lost.
func (c *cluster) checkBalances(transfers int64) error {
	want := balance{Cents: accounts * funds, Calls: accounts + 2*int(transfers)}
	for _, p := range c.processes {
		got, err := ask[balance](p, "audit", nil)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("the accounts have %d cents after %d calls, must be %d cents after %d calls", got.Cents, got.Calls, want.Cents, want.Calls)
		}
	}
	return nil
}

// fund executes the order "fund" of the parent process: it deposits money into each account.
func (c *child) fund(cents int) (perdure.Void, error) {
	for i := range accounts {
		if _, err := deposit.Call(c.client, strconv.Itoa(i), cents); err != nil {
			return perdure.Void{}, err
		}
	}
	return perdure.Void{}, nil
}

// audit executes the order "audit" of the parent process: it adds up the states of all accounts.
func (c *child) audit(perdure.Void) (total balance, err error) {
	for i := range accounts {
		state, _, err := account.Get(c.client, strconv.Itoa(i))
		if err != nil {
			return total, err
		}
		total.Cents += state.Cents
		total.Calls += state.Calls
	}
	return total, nil
}

// runTransfer moves money between two random accounts.
func (c *child) runTransfer(key string) error {
	from := rand.IntN(accounts)
	to := (from + 1 + rand.IntN(accounts-1)) % accounts
	_, err := transfer.Run(c.client, payment{strconv.Itoa(from), strconv.Itoa(to), 1 + rand.IntN(100)}, perdure.RawKey(key))
	return err
}
