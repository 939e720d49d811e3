package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

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
