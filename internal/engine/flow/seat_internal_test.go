package flow

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// A node forgets what it has said about claims of the dead while it comes to know a later version of it: one that it had written itself, and whose answer was lost. It can say something again afterwards:
// whoever never could would keep the permits of the dead for ever.
func TestForgetWhatHasChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, ctx := &shared{Store: memory.New(memory.Options{})}, t.Context()
		f := New(Config{Store: st, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute})
		said := store.Setting{SettingKey: foundKey(1), Body: []byte("{}")}
		if landed, err := f.put(ctx, said); err != nil || !landed {
			t.Fatal(landed, err)
		}
		leave, err := f.enter(ctx)
		if err != nil {
			t.Fatal(err)
		}
		forgot := make(chan error, 1)
		go func() { forgot <- f.forgetFound(ctx, 1, map[limit.Place]bool{1: true}) }()
		synctest.Wait() // until it waits for its turn
		if _, err := st.PutSetting(ctx, said, f.all[said.SettingKey].Version); err != nil {
			t.Fatal(err)
		}
		if err := f.refresh(ctx); err != nil {
			t.Fatal(err)
		}
		leave()
		if err := <-forgot; err != nil {
			t.Fatal(err)
		}
		landed := false
		for range maxTries {
			if landed, err = f.put(ctx, said); landed || err != nil {
				break
			}
		}
		if !landed {
			t.Errorf("it cannot be said again: %v", err)
		}
	})
}
