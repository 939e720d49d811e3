package perdure_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// In the first build, the state has one name. In the second build, it has two. The engine migrates
// a state when it reads it, and stores the new form with the next operation. After that the first
// build cannot read the state, so calls wait while only the first build runs.
func ExampleMigrateState() {
	dir, err := os.MkdirTemp("", "perdure")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, ctx := "file:"+filepath.Join(dir, "people.db"), context.Background()

	type personV1 struct{ Name string }
	first := perdure.NewEntity[personV1]("person")
	rename := perdure.NewOperation(first, "rename", func(_ perdure.EntityCtx, p *personV1, name string) (string, error) {
		p.Name = name
		return p.Name, nil
	})
	app := embedded.MustOpen(store, first)
	if _, err := rename.Call(app.With(ctx), "ada", "Ada Lovelace"); err != nil {
		panic(err)
	}
	if err := app.Close(); err != nil {
		panic(err)
	}

	type person struct{ First, Last string }
	second := perdure.NewEntity[person]("person", perdure.StateVersion(2), perdure.MigrateState(1, func(old personV1) (person, error) {
		first, last, _ := strings.Cut(old.Name, " ")
		return person{first, last}, nil
	}))
	marry := perdure.NewOperation(second, "marry", func(_ perdure.EntityCtx, p *person, last string) (string, error) {
		p.Last = last
		return p.First + " " + p.Last, nil
	})
	app = embedded.MustOpen(store, second)
	fmt.Println(second.Get(app.With(ctx), "ada"))
	fmt.Println(marry.Call(app.With(ctx), "ada", "King"))
	if err := app.Close(); err != nil {
		panic(err)
	}

	// An operator rolls the deploy back.
	app = embedded.MustOpen(store, first)
	defer app.Close()
	if err := rename.Send(app.With(ctx), "ada", "Ada"); err != nil {
		panic(err)
	}
	info, err := app.Entities().Describe(ctx, first.Ref("ada"))
	fmt.Println(info.StateVersion, string(info.State), info.Waiting, err)
	fmt.Println(info.Reason)
	_, _, err = first.Get(app.With(ctx), "ada")
	fmt.Println(err)
	// Output:
	// {Ada Lovelace} true <nil>
	// Ada King <nil>
	// 2 {"First":"Ada","Last":"King"} 1 <nil>
	// waits for a worker that offers state version 2 of entity person
	// the state of entity person has version 2, and this build knows versions up to 1: deploy a build that knows it
}
