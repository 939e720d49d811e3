package flow

import (
	"context"
	"fmt"
	"strconv"

	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// pageKey is the setting of a page of the ledger.
func pageKey(n int) store.SettingKey {
	return store.SettingKey{Kind: settingPage, Name: fmt.Sprintf("%02d", n)}
}

func pageNumber(key store.SettingKey) (n int, ok bool) {
	n, err := strconv.Atoi(key.Name)
	return n, err == nil && n >= 0 && n < ledger.Pages
}

// showPage passes a stored page to the book of a gate. The caller must hold the lock of the board.
func (f *Flow) showPage(now model.Time, k *BoardGate, n int, body []byte) {
	if k.Book == nil {
		return
	}
	if err := k.Book.ApplyPage(now, n, body); err != nil {
		f.log.Error("the limits of tasks cannot be read; tasks that need them keep waiting", "page", n, "error", err)
	}
}

// writePages writes the pages that are due. The caller must hold the turn.
func (f *Flow) writePages(ctx context.Context) error {
	s := f.participant()
	if s == nil || !f.store.Info().Shared {
		return nil
	}

	due := s.duePages()
	for _, n := range due {
		if f.participant() != s {
			// The life of this node is over. Its book no longer sees what other nodes write, so a
			// page of this book would overwrite their changes.
			return nil
		}
		if err := f.writePage(ctx, s.board, n); err != nil {
			return err
		}
	}

	if len(due) > 0 {
		s.board.Reconsider()
	} else {
		s.board.Propose()
	}

	return nil
}

func (f *Flow) writePage(ctx context.Context, b Board, n int) error {
	now := f.node.Now()
	var body []byte
	var needed bool
	var err error
	b.Look(func(k *BoardGate, _ *queue.Board) { body, needed, err = k.Book.Compose(now, n) })

	if err != nil {
		f.log.Error("the limits of tasks cannot be read; tasks that need them keep waiting", "page", n, "error", err)
		return nil
	}

	if !needed {
		return nil
	}

	switch landed, err := f.put(ctx, store.Setting{SettingKey: pageKey(n), Body: body}); {
	case err != nil:
		return err
	case landed:
		b.Change(now, func(k *BoardGate, _ *queue.Board) bool {
			f.showPage(now, k, n, body)
			return true
		})
	}

	f.mu.Lock()
	// There may be more to write. If another node has written first, nothing of this page is
	// written yet.
	f.again = true
	f.mu.Unlock()
	return nil
}
