package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// scripted is a backend whose feed sends the pages of a list, one every ten seconds.
type scripted struct {
	api.Backend

	pages []api.ChangePage
	over  error // how the feed ends; nil if it lasts
}

func (s scripted) Watch(ctx context.Context, _ api.WatchRequest, take func(api.ChangePage) error) error {
	for _, p := range s.pages {
		if err := take(p); err != nil {
			return err
		}
		time.Sleep(10 * time.Second)
	}
	if s.over != nil {
		return s.over
	}
	<-ctx.Done()
	return ctx.Err()
}

// A command that follows the feed keeps following it while it is partial, and reads everything each
// second until the feed is complete.
func TestFollowsAPartialFeed(t *testing.T) {
	t.Parallel()
	change := api.ChangePage{Changes: []api.Change{{Class: model.ClassExecution}}}
	for name, c := range map[string]struct {
		pages         []api.ChangePage
		over          error
		reads, looked int
		says          string
	}{
		"complete":      {[]api.ChangePage{{}, change, change}, nil, 1, 2, ""},
		"gap":           {[]api.ChangePage{{}, {Gap: true}, change}, nil, 2, 1, "Changes were missed"},
		"partial":       {[]api.ChangePage{{}, {Partial: true}, {Gap: true}, change}, nil, 1 + 1 + 9 + 1, 1, "gets all changes again"},
		"begins so":     {[]api.ChangePage{{Partial: true}, {Gap: true}, change}, nil, 1 + 9 + 1, 1, "does not get all changes"},
		"no feed":       {nil, api.ErrNoFeed, 30, 0, "does not own the executions"},
		"its feed ends": {[]api.ChangePage{{}}, errors.New("the server has stopped"), 1, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				o := &options{}
				o.Err = &said
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10*max(len(c.pages), 3))*time.Second-time.Millisecond)
				defer cancel()
				reads, looked := 0, 0
				err := o.follow(ctx, scripted{pages: c.pages, over: c.over}, api.WatchRequest{}, func(p *api.ChangePage) error {
					if p == nil {
						reads++
					} else {
						looked++
					}
					return nil
				})

				if c.over != nil && !errors.Is(c.over, api.ErrNoFeed) {
					if !errors.Is(err, c.over) {
						t.Error(err)
					}
				} else if err != nil {
					t.Error(err)
				}
				if reads < c.reads || reads > c.reads+1 || looked != c.looked || !strings.Contains(said.String(), c.says) || c.says == "" && said.Len() > 0 {
					t.Errorf("it has read everything %d times and changes %d times, and said %q; want about %d and %d, and %q", reads, looked, said.String(), c.reads, c.looked, c.says)
				}
			})
		})
	}

	enough := errors.New("enough")
	o := &options{}
	if err := o.follow(t.Context(), scripted{pages: []api.ChangePage{{}}}, api.WatchRequest{}, func(*api.ChangePage) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}
