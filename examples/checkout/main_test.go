package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
	"github.com/perdure/perdure/perduretest"
)

func TestCheckout(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "checkout.db")
	for range 2 { // the second run finds that everything is done
		var out printed.Text
		if err := run(t.Context(), url, out.Say); err != nil {
			t.Fatal(err)
		}
		if diff := printed.Diff(out.String(),
			"o-1: o-1 paid 40.00", "o-2: chair is sold out", "o-3: the card is refused", "o-4: o-4 paid 20.00", "lamp: 0 left", "chair: 0 left"); diff != "" {
			t.Error(diff)
		}
	}
}

// No crash of the process, at any time, loses a piece or sells it twice. If a card is refused, the
// shelf does not change.
func TestNothingIsSoldTwice(t *testing.T) {
	t.Parallel()
	perduretest.Explore(t, func() perduretest.Scenario[int] {
		return perduretest.Scenario[int]{
			Definitions: program, MaxPoints: 20,
			Drive: func(env *perduretest.Env) (int, error) {
				c := env.With()
				if _, err := put.Call(c, "lamp", 2, perdure.RequestID("delivery")); err != nil {
					return 0, err
				}
				if _, err := checkout.Run(c, order{"o-1", []string{"lamp"}, "good"}); err != nil {
					return 0, err
				}
				_, err := checkout.Run(c, order{"o-2", []string{"lamp"}, "stolen"})
				if refused := new(perdure.RemoteError); !errors.As(err, &refused) || refused.Message != "the card is refused" {
					return 0, fmt.Errorf("a stolen card: %w", err)
				}
				s, _, err := shelves.Get(c, "lamp")
				return s.Pieces, err
			},
		}
	})
}
