package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/storetest"
)

// rowCatcher is a store that refuses requests, and keeps the last request.
type rowCatcher struct {
	store.Store
	row store.InboxRow
}

func (s *rowCatcher) PutInbox(_ context.Context, rows []store.InboxRow) error {
	s.row = rows[0]
	return store.Errorf(store.Refused, "put inbox", "caught")
}

// A request that was lost with a connection goes to the store under the same id. The stored request
// names the connection. After an owner has read the stored request, it looks up the id of every
// request that it still gets over that connection. A request without an id gets a new id, which no
// owner can have seen.
func TestStoredRequestNamesTheLostConnection(t *testing.T) {
	t.Parallel()
	st := &rowCatcher{Store: memory.New(memory.Options{})}
	eng := New(Config{Store: st})
	link := model.RunID{7}
	for id, want := range map[string]model.RunID{"mine": link, "": {}} {
		m := &model.Message{Kind: model.MessageSignal, To: model.Address{Tenant: "t", Type: "w", Key: "k"}, Name: "s", RequestID: id}
		_, err := eng.clerk.send(t.Context(), m, attempt{taken: true, link: link})
		if refused := (*store.Error)(nil); !errors.As(err, &refused) {
			t.Fatalf("the request ended with %v, want the refusal of the store", err)
		}
		if got := st.row.Message; got.Linked != want || got.RequestID == "" {
			t.Errorf("the request with id %q names connection %s and has id %q, want connection %s", id, got.Linked, got.RequestID, want)
		}
	}
}

// answerReads is a store that counts reads of answers.
type answerReads struct {
	store.Store
	n int
}

func (s *answerReads) LoadAnswers(ctx context.Context, a store.Awaited) (store.Answers, error) {
	s.n++
	return s.Store.LoadAnswers(ctx, a)
}

// A caller started a run of another owner, and waits for its end. If the run has ended, the clerk
// usually finds the answer and the end with one read. If another run has taken the address, the
// clerk finds the end with a second read.
func TestEndOfAStartIsFoundWithItsAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		closed, replaced bool
		reads            int
	}{
		"the run is open": {reads: 2}, "the run has ended": {closed: true, reads: 1}, "another run has its address": {closed: true, replaced: true, reads: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := &answerReads{Store: memory.New(memory.Options{})}
			k := New(Config{Store: st}).clerk
			f := storetest.New(t, st)
			run := f.Subject()
			next := f.SubjectOf(run.Start.Address)
			answer := run.Reply("r", storetest.Noon)
			answer.Body = model.AppendAnswer(nil, &model.Answer{Run: run.Run})
			end := func(l *storetest.Lane) {
				l.Write(func(b *store.Batch) { b.Closes = []store.CloseRow{run.Close(model.Completed)} })
			}

			l := f.Join(1).Lanes[0]
			l.Write(func(b *store.Batch) { b.Starts, b.Requests = []store.StartRow{run.StartRow()}, []store.Reply{answer} })
			if c.closed {
				end(l)
			}
			if c.replaced {
				l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{next.Replace(run.Run)} })
			}

			start := newCall()
			start.ends, start.asked = newCall(), &model.Message{Kind: model.MessageStart, To: run.Start.Address}
			k.replies[answer.RequestKey] = []*call{start}
			k.look(t.Context())
			if st.n != c.reads || start.answer.Answer.Run != run.Run {
				t.Errorf("%d reads, and the answer %+v; want %d reads and run %s", st.n, start.answer, c.reads, run.Run)
			}

			st.n = 0
			if !c.closed {
				if len(k.runs) != 1 || start.ends.answer.Result != nil {
					t.Fatalf("the clerk waits for %v, and the end is %+v; want one run and no end", k.runs, start.ends.answer)
				}
				end(l)
				k.look(t.Context())
			}
			if r := start.ends.answer.Result; r == nil || r.Run != run.Run || r.Outcome.Status != model.Completed {
				t.Errorf("the end is %+v, want that of run %s", r, run.Run)
			}
			if !c.closed && st.n != 1 {
				t.Errorf("%d reads for a run that the clerk knows, want one", st.n)
			}
		})
	}
}
