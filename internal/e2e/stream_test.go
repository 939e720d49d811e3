package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// counting has an entity with a view that streams the numbers from 0 to the state of the entity.
type counting struct {
	numbers *perdure.Entity[int]
	set     *perdure.Operation[int, int]
	count   *perdure.Stream[perdure.Void, int]
}

func newCounting() *counting {
	c := &counting{numbers: perdure.NewEntity[int]("number")}
	c.set = perdure.NewOperation(c.numbers, "set", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		*s = n
		return n, nil
	})
	c.count = perdure.NewStream(c.numbers, "count", func(_ context.Context, n int, _ perdure.Void, send func(int) error) error {
		for i := range n {
			if err := send(i); err != nil {
				return err
			}
		}
		return nil
	})
	return c
}

// read reads a stream and returns how many items it has.
func (c *counting) read(t *testing.T, app *perdure.App, key string) (n int, err error) {
	for i, err := range c.count.Read(caller(t, app), key, perdure.Void{}) {
		if err != nil {
			return n, err
		}
		if i != n {
			t.Fatalf("item %d of %s is %d", n, key, i)
		}
		n++
	}
	return n, nil
}

// Three processes share a database: one has the code, one is a server, and one has other code. Each
// of them, and a client of the server, can read a stream, no matter which process owns the entity.
// The code runs in the first process, or in a remote worker of the server. Without connections
// between the processes, a process cannot read a stream of an entity that another process owns, and
// the call is refused.
func TestStreamFromAnyProcess(t *testing.T) {
	t.Parallel()
	const keys, items = 12, 300 // which process owns which key is random
	for _, test := range []struct{ linked, remote bool }{{true, false}, {true, true}, {false, false}} {
		t.Run(fmt.Sprintf("linked %v remote %v", test.linked, test.remote), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "postgres")
			s.cfg.NoPeerLink = !test.linked
			server, err := node.Serve(t.Context(), node.ServerConfig{
				Node: node.Config{URL: s.url, AllowUnsafe: true, NoPeerLink: !test.linked}, Listen: "127.0.0.1:0", Authenticator: authn.Open{Tenant: model.DefaultTenant},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := server.Close(t.Context()); err != nil {
					t.Log(err)
				}
			})

			c := newCounting()
			dial := func(defs ...perdure.Definition) *perdure.App {
				app, err := perdure.Dial(t.Context(), "grpc://"+server.Addr().String(), defs...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := app.Close(); err != nil {
						t.Error(err)
					}
				})
				return app
			}
			apps := []*perdure.App{s.open(newProgram("b").definitions()...)}
			if test.remote {
				apps = append(apps, dial(c.numbers))
			} else {
				apps = append(apps, s.open(c.numbers), dial())
			}

			readers := apps
			if !test.linked {
				readers = apps[1:2] // the code cannot send to another owner either
			}

			refused := 0
			for i := range keys {
				key := fmt.Sprint("k", i)
				if _, err := c.set.Call(caller(t, apps[0]), key, items); err != nil {
					t.Fatal(err)
				}
				for j, app := range readers {
					n, err := c.read(t, app, key)
					// The processes have just opened, so they still connect to each other and move
					// shards.
					for until := time.Now().Add(patience); test.linked && errors.Is(err, perdure.ErrUnavailable) && time.Now().Before(until); {
						time.Sleep(10 * time.Millisecond)
						n, err = c.read(t, app, key)
					}
					switch {
					case err == nil && n == items:
					case !test.linked && errors.Is(err, perdure.ErrUnavailable) && n == 0:
						refused++
					default:
						t.Errorf("%s from process %d: %d items, %v", key, j, n, err)
					}
				}
			}
			if !test.linked && refused == 0 {
				t.Error("no stream was refused")
			}
		})
	}
}
