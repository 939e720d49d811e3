package perdure_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// The caller of an operation gets its answer when the operation has ended. The caller does not wait
// for the later operations in the mailbox, no matter how many there are.
func TestSlowOperationsAreAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	accounts := perdure.NewEntity[account]("slow")
	gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
	hold := perdure.NewOperation(accounts, "hold", func(_ perdure.EntityCtx, a *account, gate int) (int, error) {
		<-gates[gate]
		a.Cents++
		return a.Cents, nil
	})
	slow := perdure.NewOperation(accounts, "slow", func(_ perdure.EntityCtx, a *account, _ int) (int, error) {
		time.Sleep(50 * time.Millisecond) //perdure:allow clock the operation is slow on purpose
		a.Cents++
		return a.Cents, nil
	})

	inFile(t, perdure.Group{accounts}, func(t *testing.T, c perdure.Client, app *perdure.App) {
		t.Helper()
		answers := make(chan int, 3)
		line := func(n int, call func() (int, error)) {
			go func() {
				got, err := call()
				if err != nil {
					t.Error(err)
				}
				answers <- got
			}()
			for waiting := 0; waiting != n; time.Sleep(time.Millisecond) {
				waiting = 0
				for _, err := range app.Mailboxes().List(t.Context(), accounts.Ref("a")) {
					if err != nil {
						t.Fatal(err)
					}
					waiting++
				}
			}
		}
		line(1, func() (int, error) { return hold.Call(c, "a", 0) })
		line(2, func() (int, error) { return slow.Call(c, "a", 0) })
		line(3, func() (int, error) { return hold.Call(c, "a", 1) })

		close(gates[0])
		if first, second := <-answers, <-answers; first+second != 3 {
			t.Errorf("the answers are %d and %d", first, second)
		}
		close(gates[1])
		if third := <-answers; third != 3 {
			t.Errorf("the last answer is %d", third)
		}
	})
}

// An operation that does not return blocks neither its caller nor its key. The caller gets an
// error, the state does not change, and the next call runs. The engine ignores what the hung code
// does later.
func TestHungOperation(t *testing.T) {
	t.Parallel()
	const limit = 5 * time.Second // a deposit must take less time than this, even on a busy machine
	release, returned := make(chan struct{}), make(chan struct{})
	accounts := perdure.NewEntity[account]("limited", perdure.OperationTimeout(limit))

	deposit := perdure.NewOperation(accounts, "deposit", func(_ perdure.EntityCtx, a *account, n int) (int, error) {
		a.Cents += n
		return a.Cents, nil
	})

	hang := perdure.NewOperation(accounts, "hang", func(_ perdure.EntityCtx, a *account, n int) (int, error) {
		defer close(returned)
		a.Cents += n
		<-release
		a.Cents += n
		return a.Cents, nil
	})

	inFile(t, perdure.Group{accounts}, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		t.Helper()
		if n, err := deposit.Call(c, "a", 5); err != nil || n != 5 {
			t.Errorf("deposit = %d, %v", n, err)
		}
		_, err := hang.Call(c, "a", 1000)
		if !errors.Is(err, perdure.ErrTimeout) || !strings.Contains(err.Error(), "hang of limited/a has exceeded its time limit of "+limit.String()) {
			t.Errorf("the call that hangs: %v", err)
		}
		if n, err := deposit.Call(c, "a", 2); err != nil || n != 7 {
			t.Errorf("deposit behind it = %d, %v", n, err)
		}
		close(release)
		<-returned
		if n, err := deposit.Call(c, "a", 1); err != nil || n != 8 {
			t.Errorf("deposit after it = %d, %v", n, err)
		}
		if s, _, err := accounts.Get(c, "a"); err != nil || s.Cents != 8 {
			t.Errorf("the state is %+v, %v", s, err)
		}
	})
}
