package lane

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// written is what is known of the data of a task while somebody writes it. It is read when a claim writes for the first time; a task that writes nothing has none.
type written struct {
	core.Written
	err error // why it cannot be understood: then nothing more is written
}

// writes reports whether the input is what a claim writes beside the history.
func (in *input) writes() bool { return in.kind == inMessage && in.message.Kind == model.MessageWrite }

// claims reports whether the claim is the one that holds its task.
func (e *entry) claims(ref *model.ClaimRef) bool {
	if e.x == nil || e.run() != ref.Run {
		return false
	}
	t := e.x.Task(ref.ID)
	return t != nil && t.Held && t.Claim == ref.Claim
}

// unread reports whether what the task has written before has to be read first.
func (e *entry) unread(in *input) bool {
	return in.writes() && e.written[in.message.Write.Ref.ID] == nil && e.claims(&in.message.Write.Ref)
}

func (l *Lane) loadWritten(e *entry, in *input) {
	ref := &in.message.Write.Ref
	e.loading = true
	l.loads.add(&Load{Kind: LoadWritten, Shard: e.shard.id, Address: e.address, Run: ref.Run, Task: ref.ID, entry: e})
}

// loadedWritten keeps what was read, unless the run is another one by now, or is being read itself.
func (l *Lane) loadedWritten(ld *Load, r LoadResult) {
	e := ld.entry
	e.loading = false
	if e.known && e.run() == ld.Run && ld.version == e.version {
		if e.written == nil {
			e.written = map[string]*written{}
		}
		e.written[ld.Task] = writtenOf(r)
	}
	if len(e.backlog) > 0 {
		l.schedule(e)
	} else {
		l.maybeDrop(e)
	}
}

// writtenOf is how far a task has written, from what was read.
func writtenOf(r LoadResult) *written {
	w := &written{err: r.Err}
	for i := range r.Data {
		d := &r.Data[i]
		if mark, ok, err := d.Mark(); ok {
			w.Claim, w.Seq, w.Lines, w.Items, w.At, w.err = mark.Claim, mark.Seq, mark.Lines, mark.Items, mark.At, err
		} else if d.IsState() {
			if w.Sizes == nil {
				w.Sizes = map[string]int{}
			}
			n := len(d.Name) + d.Value.Size()
			w.Sizes[d.Name] = n
			w.Bytes += n
		}
	}
	return w
}

// applyWrite puts what a claim writes into the open batch. The answer is told when it is durable; that of a repetition, when the first one is.
func (l *Lane) applyWrite(now model.Time, e *entry, in *input) {
	var d core.Decision
	if err := l.writeData(now, e, in); err != nil {
		d.Answer.Failure = &model.Failure{Kind: fault.KindOf(err).String(), Message: err.Error()}
	}
	l.record(e, in, &d)
}

func (l *Lane) writeData(now model.Time, e *entry, in *input) error {
	ref := &in.message.Write.Ref
	w := e.written[ref.ID]
	switch {
	case !e.claims(ref) || w == nil:
		return fault.New(fault.NotOwned, "%s: the claim is over, or somebody else's", ref.TaskRef)
	case w.err != nil:
		return w.err
	}
	c, news, err := w.Write(in.message.Write, now)
	if err != nil || !news {
		return err
	}
	b, key := l.open, e.key()
	l.touch(b, e)
	for i := range c.States {
		s := &c.States[i]
		b.putDatum(store.TaskDatum{RunKey: key, Task: ref.ID, Name: s.Name, Value: s.Value, Deleted: s.Removed})
	}
	for i := range c.Items {
		b.putDatum(store.NewStreamed(key, ref.ID, &c.Items[i]))
	}
	for _, position := range c.Dropped {
		b.putDatum(store.DropStreamed(key, ref.ID, position))
	}
	for i := range c.Lines {
		it := &c.Lines[i]
		b.batch.Logs = append(b.batch.Logs, store.LogRow{RunKey: key, Task: ref.ID, At: it.At, N: int32(len(b.batch.Logs)), Level: it.Level, Text: it.Text})
		b.bytes += rowBytes + len(it.Text)
	}
	mark := store.TaskMark{Claim: w.Claim, Seq: w.Seq, Lines: w.Lines, Items: w.Items, At: w.At}
	b.putDatum(mark.Datum(key, ref.ID))
	return nil
}

// datumKey is what a batch has one row for.
type datumKey struct {
	store.RunKey
	task, name string
}

// putDatum adds a value of a task. The last one of a name in a batch counts: a store takes each of them once.
func (b *building) putDatum(row store.TaskDatum) {
	key := datumKey{row.RunKey, row.Task, row.Name}
	b.bytes += rowBytes + row.Value.Size()
	if i, ok := b.data[key]; ok {
		b.bytes -= rowBytes + b.batch.TaskData[i].Value.Size()
		b.batch.TaskData[i] = row
		return
	}
	if b.data == nil {
		b.data = map[datumKey]int{}
	}
	b.data[key] = len(b.batch.TaskData)
	b.batch.TaskData = append(b.batch.TaskData, row)
}

// ---- who listens

// watchFor is how long a listener of another node is told of changes; it says again that it listens before that.
const watchFor = 2 * time.Minute

// watcher is somebody who wants to hear that something of an address has been committed: a caller of this process, who hears it once, or another node.
type watcher struct {
	token any
	node  model.NodeID
	until model.Time
}

// Watch has the token answered when the next commit has something of the address in it; Unwatch takes it back.
func (l *Lane) Watch(a model.Address, token any) error {
	if sh := l.shards[a.Shard(l.cfg.Shards)]; l.dead != nil || sh == nil || sh.draining {
		return ErrNotOwner
	}
	l.addWatcher(a, watcher{token: token})
	return nil
}

// Unwatch takes a Watch back.
func (l *Lane) Unwatch(a model.Address, token any) {
	l.keepWatchers(a, func(w *watcher) bool { return w.token != token })
}

func (l *Lane) addWatcher(a model.Address, w watcher) {
	if l.watchers == nil {
		l.watchers = map[model.Address][]watcher{}
	}
	if w.token == nil {
		l.keepWatchers(a, func(o *watcher) bool { return o.node != w.node })
		l.sweepWatchers()
	}
	l.watchers[a] = append(l.watchers[a], w)
}

// sweepWatchers forgets nodes that listen no more, to executions of which nothing is committed any more: nobody else would. It looks when there are twice as many as were left the last time.
func (l *Lane) sweepWatchers() {
	if len(l.watchers) < l.watched {
		return
	}
	for a := range l.watchers {
		l.keepWatchers(a, func(w *watcher) bool { return w.token != nil || w.until > l.now })
	}
	l.watched = max(2*len(l.watchers), 64)
}

func (l *Lane) keepWatchers(a model.Address, keep func(*watcher) bool) {
	left := slices.DeleteFunc(l.watchers[a], func(w watcher) bool { return !keep(&w) })
	if len(left) == 0 {
		delete(l.watchers, a)
	} else {
		l.watchers[a] = left
	}
}

// tellWatchers tells those who listen that something of the address is durable.
func (l *Lane) tellWatchers(now model.Time, a model.Address) {
	l.keepWatchers(a, func(w *watcher) bool {
		if w.token != nil {
			l.answer(Answer{Token: w.token})
			return false
		}
		if w.until > now {
			l.out.Hints = append(l.out.Hints, Hint{Node: w.node, Address: a})
		}
		return w.until > now
	})
}

// failWatchers tells those who listen to addresses of a shard, or to any when none is given, to look who owns it now.
func (l *Lane) failWatchers(shards ...model.ShardID) {
	var gone []model.Address
	for a := range l.watchers {
		if len(shards) == 0 || slices.Contains(shards, a.Shard(l.cfg.Shards)) {
			gone = append(gone, a)
		}
	}
	slices.SortFunc(gone, compareAddresses)
	for _, a := range gone {
		l.tellWatchers(l.now, a)
		delete(l.watchers, a)
	}
}
