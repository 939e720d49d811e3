package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

type money struct{ Cents int }

var (
	accounts = perdure.NewEntity[money]("account")
	deposit  = perdure.NewOperation(accounts, "deposit", func(_ perdure.EntityCtx, s *money, in money) (int, error) {
		if s.Cents += in.Cents; s.Cents < 0 {
			return 0, perdure.Permanent(errors.New("insufficient funds"))
		}
		return s.Cents, nil
	})
	_     = perdure.NewView(accounts, "cents", func(s money, _ perdure.Void) (int, error) { return s.Cents, nil })
	shelf = perdure.NewEntity[[]string]("shelf")
	store = perdure.NewOperation(shelf, "store", func(_ perdure.EntityCtx, s *[]string, in string) (int, error) {
		*s = append(*s, in)
		return len(*s), nil
	})
	_ = perdure.NewStream(shelf, "list", func(_ context.Context, s []string, from int, send func(string) error) error {
		for _, item := range s[min(from, len(s)):] {
			if err := send(item); err != nil {
				return err
			}
		}
		if from > len(s) {
			return perdure.Permanent(fmt.Errorf("there are %d things", len(s)))
		}
		return nil
	})
	clock = perdure.NewService("clock")
	_     = perdure.NewRPC(clock, "zone", func(ctx perdure.EntityCtx, _ perdure.Void) (string, error) { return "zone " + ctx.Key(), nil })
)

// bankDemo creates a store with two accounts and a shelf. The stored calls of account eu-1 are
// done.
func bankDemo() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	app, err := embedded.Open(ctx, os.Args[1], accounts, shelf)
	if err == nil {
		c := app.With(ctx)
		_, first := deposit.Call(c, "eu-1", money{100}, perdure.RequestID("first"))
		_, second := deposit.Call(c, "us-1", money{5}, perdure.RequestID("second"))
		_, third := store.Call(c, "top", "lamp", perdure.RequestID("third"))
		_, last := deposit.Call(c, "eu-1", money{}) // comes after the waiting calls
		err = errors.Join(first, second, third, last, app.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// On a file a command calls entities of the program that has the file open, through its socket.
func TestEntitiesOfAProgramOnAFile(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "bank.db")
	app, err := embedded.Open(t.Context(), url, accounts, shelf, clock)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()

	do := on(t, url)
	do("1", 0, "entity", "call", "shelf/top", "store", "--input", `"lamp"`)
	do("2", 0, "entity", "call", "shelf/top", "store", "--input", `"vase"`)
	do("\"lamp\"\n\"vase\"\n", 0, "entity", "stream", "shelf/top", "list", "--input", "0")
	do("\"vase\"\n", 0, "entity", "stream", "shelf/top", "list", "--input", "1", "-o", "json")
	do("there are 2 things", 1, "entity", "stream", "shelf/top", "list", "--input", "3")
	do("store", 2, "entity", "stream", "shelf/top", "store")
	do("100", 0, "entity", "call", "account/eu-1", "deposit", "--input", `{"Cents": 100}`)
	do("zone eu", 0, "entity", "call", "service:clock/eu", "zone")
	do("insufficient funds", 1, "entity", "call", "account/eu-1", "deposit", "--input", `{"Cents": -200}`)
}

// On PostgreSQL a command calls entities of a running program. The code can reject the call.
func TestEntitiesBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, accounts, shelf, clock)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()

	do := on(t, url)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{`call account/42 deposit --input {"Cents":100} --request-id d-1`, 0, "100"},
		// A repetition gets the same answer.
		{`call account/42 deposit --input {"Cents":100} --request-id d-1`, 0, "100"},
		{`call account/42 deposit --input {"Cents":-500}`, 1, "insufficient funds"},
		{`call entity:account/42 cents -o json`, 0, "100"},
		{`call account/42 withdraw`, 3, "withdraw"},
		{`call account/42 deposit --input {`, 2, "not JSON"},
		{`call account deposit`, 2, "write entity/key"},
		{`call service:/x zone`, 2, "write entity/key"},
		{`call service:clock/eu zone`, 0, `"zone eu"`},
		// No program has the code of carts.
		{`call cart/1 add --timeout 300ms`, 6, "one node is running and has not answered"},
		{`call shelf/top store --input "lamp"`, 0, "1"},
		{`stream shelf/top list --input 0`, 2, "--server grpc://host:7800"},
		{`send account/42 deposit --input {"Cents":1} --request-id d-2`, 0, "sent deposit to account/42"},
		{`send account/42 deposit --input {"Cents":1} --request-id d-2 -o json`, 0, `"operation": "deposit"`},
		{`call account/42 cents`, 0, "101"},
		{`show account/42`, 0, `{"Cents":101}`},
		{`show service:clock/eu`, 0, "nothing"},
		{`list account --prefix 4 -o json`, 0, `"Cents": 101`},
	} {
		do(c.want, c.code, append([]string{"entity"}, strings.Fields(c.args)...)...)
	}

	do("entities account, perdure.singleton, shelf, service:clock", 0, "worker", "list")
	do(`"service:clock"`, 0, "worker", "list", "-o", "json")
	do("see `perdure entity show account/42`", 2, "workflow", "explain", "entity:account/42")
}
