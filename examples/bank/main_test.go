package main

import (
	"path/filepath"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/internal/printed"
	"github.com/perdure/perdure/perduretest"
)

func TestBank(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, url := range map[string]string{"memory": "memory:", "file": "file:" + filepath.Join(dir, "bank.db")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // on the file, the second finds everything done
				var out printed.Text
				if err := run(t.Context(), url, out.Say); err != nil {
					t.Fatal(err)
				}
				diff := printed.Diff(out.String(), "transfer t-poor: insufficient funds", "review: bob has 999.91",
					"ann has 19 cents", "bob has 99991 cents", "cid has 49990 cents", "together: 150000 cents")
				if diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// Whenever the process dies, no cent is made or lost.
func TestNoCentIsLost(t *testing.T) {
	t.Parallel()
	perduretest.Explore(t, func() perduretest.Scenario[[2]int] {
		return perduretest.Scenario[[2]int]{
			Definitions: []perdure.Definition{accounts, move, review},
			Drive: func(env *perduretest.Env) (left [2]int, err error) {
				c := env.With()
				if _, err := deposit.Call(c, "ann", 100, perdure.RequestID("opening")); err != nil {
					return left, err
				}
				if _, err := move.Run(c, transfer{"t", "ann", "bob", 30}); err != nil {
					return left, err
				}
				for i, owner := range []string{"ann", "bob"} {
					if left[i], err = balance.Call(c, owner, perdure.Void{}); err != nil {
						return left, err
					}
				}
				return left, nil
			},
		}
	})
}
