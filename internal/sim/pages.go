package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	limits "github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// How nodes share limits and breakers: engine/flow/pages.go and seat.go, with events in place of goroutines. The book, the gate and the breakers are those of production; writes of pages fail, are lost on the way
// there or back, land late, and whoever makes them dies in between.

// maxTries is how often something is tried again in one go that others have got ahead of.
const maxTries = 10

func pageKey(n int) store.SettingKey {
	return store.SettingKey{Kind: settingPage, Name: fmt.Sprintf("%02d", n)}
}

func pageNumber(s *Sim, key store.SettingKey) int {
	n, err := strconv.Atoi(key.Name)
	if err != nil {
		s.fail("page %s: %v", key, err)
	}
	return n
}

// seen has the book look at a page.
func (b *board) seen(now model.Time, n int, body []byte) {
	if err := b.keeper.book.Seen(now, n, body); err != nil {
		b.inc.p.s.fail("page %d: %v", n, err)
	}
	b.moved = true
}

// board is that of the current incarnation, or of one that is about to end in order; nil when there is none.
func (f *flow) board() *board {
	if f.p.inc != nil {
		return f.p.inc.board
	}
	return f.parting
}

// tell has pages and breakers that nodes share written, soon: with what there is to tell, or because a page is due.
func (f *flow) tell(asks []gate.Ask) {
	for _, a := range asks {
		f.asks[a.Breaker] = append(f.asks[a.Breaker], a.ToOwner)
	}
	f.begin()
}

// hint has others look at the settings.
func (f *flow) hint() {
	s := f.p.s
	for _, p := range s.procs {
		if p != nil && p != f.p && !s.hintIsLost() {
			s.after(s.disk.latency(), p, func() {
				if p.inc != nil {
					p.flow.look = true
					p.flow.begin()
				}
			})
		}
	}
}

// inTurn does something for each of a number of things, one after the other, until one fails.
func inTurn(n int, do func(i int, next func(error)), then func(error)) {
	var one func(i int)
	one = func(i int) {
		if i == n {
			then(nil)
			return
		}
		do(i, func(err error) {
			if err != nil {
				then(err)
				return
			}
			one(i + 1)
		})
	}
	one(0)
}

// writePages writes what is due. It is called in turn.
func (f *flow) writePages(then func(error)) {
	b := f.board()
	if b == nil || b.keeper.book == nil {
		then(nil)
		return
	}
	due := b.keeper.book.Due(f.p.now())
	inTurn(len(due), func(i int, next func(error)) {
		if f.board() != b { // its life has ended: it has not seen what was read since, and would write what it knows over that
			next(nil)
			return
		}
		f.writePage(b, due[i], next)
	}, func(err error) {
		if err == nil && len(due) > 0 { // when to look again may be another time now
			b.moved = true
			b.propose()
		}
		then(err)
	})
}

func (f *flow) writePage(b *board, n int, then func(error)) {
	now := f.p.now()
	body, needed, err := b.keeper.book.Compose(now, n)
	if err != nil {
		f.p.s.fail("page %d: %v", n, err)
	}
	if !needed {
		then(nil)
		return
	}
	f.put(store.Setting{SettingKey: pageKey(n), Body: body}, func(landed bool, err error) {
		if landed {
			b.seen(now, n, body)
			b.settle(now)
			f.p.s.did(opPage)
		}
		f.again = true // there may be more, and if somebody else was faster, it is all still to be written
		then(err)
	})
}

// put writes a setting that nodes write by themselves, if it is still the one that is known; otherwise that is read and applied. It is called in turn.
func (f *flow) put(x store.Setting, then func(landed bool, err error)) {
	s, version := f.p.s, f.all[x.SettingKey].Version
	f.ask("put setting", true, func() (err error) {
		x.Version, err = s.putSetting(x, version)
		return err
	}, func(err error) {
		switch {
		case err == nil:
			f.all[x.SettingKey] = x
			if s.shared {
				f.hint()
			}
			then(true, nil)
		case outrun(err):
			s.did(opStateLost)
			f.refresh(func(err error) { then(false, err) })
		default:
			then(false, err)
		}
	})
}

// putSetting writes a setting at the store.
func (s *Sim) putSetting(x store.Setting, version int64) (int64, error) {
	now, err := s.disk.mem.PutSetting(background, x, version)
	if err != nil {
		return 0, err
	}
	if s.opts.Trace {
		s.logf("store    setting %s version %d%s", x.SettingKey, now, s.describeSetting(&x))
	}
	if x.Kind == settingState && s.shared {
		s.breakerStored(x.Name, x.Body)
	}
	return now, nil
}

// describeSetting lists the leases on a page, or how a breaker stands, for people.
func (s *Sim) describeSetting(x *store.Setting) string {
	switch x.Kind {
	case settingState:
		o, err := breaker.Decode(x.Body)
		if err != nil {
			return ": " + err.Error()
		}
		st := o.Status(s.storeTime())
		return fmt.Sprintf(": %s since %s until %s, held %v (%s), %d failures, %d probes", st.State, st.Since, st.Until, st.Held, st.Why, st.Failures, st.Probes)
	case settingPage:
		list, sole, err := limits.Read(x.Body)
		if sole != 0 {
			return fmt.Sprintf(": all of it is with place %d, %v", sole, err)
		}
		return fmt.Sprintf(": %+v, %v", list, err)
	default:
		return ""
	}
}

// askOne applies what views of this node tell a breaker that nodes share. It is called in turn.
func (f *flow) askOne(id rule.BreakerID, then func(error)) {
	b, told := f.board(), f.asks[id]
	if len(told) == 0 || b == nil {
		then(nil)
		return
	}
	key := store.SettingKey{Tenant: id.Tenant, Kind: settingState, Name: id.Name}
	row, stored := f.all[key]
	now, config := f.p.now(), f.rules.BreakerConfig(id)
	x := breaker.New(config, now)
	if stored {
		x = f.p.s.breakerOf(row.Body, now, config)
	}
	var probe breaker.Permit
	changed, asked := false, false
	for i := range told {
		p, c := x.Receive(now, &told[i])
		changed, asked = changed || c, asked || told[i].Ask
		if p.Probe != 0 {
			probe = p
		}
	}
	heard := func() {
		if rest := f.asks[id][len(told):]; len(rest) > 0 {
			f.asks[id], f.again = rest, true
		} else {
			delete(f.asks, id)
		}
		k := b.keeper
		k.g.Told(id, len(told))
		if changed {
			k.adoptShared(now, id, f.all[key].Body)
		}
		if asked {
			k.answer(now, id, probe)
		}
		b.settle(now)
		b.moved = true
		b.propose()
		then(nil)
	}
	if !changed {
		heard()
		return
	}
	body, err := x.Encode()
	if err != nil {
		f.p.s.fail("breaker %s: %v", id, err)
	}
	f.put(store.Setting{SettingKey: key, Body: body}, func(landed bool, err error) {
		if !landed {
			f.again = true
			then(err)
			return
		}
		f.p.s.did(opStateSaved)
		heard()
	})
}

// breakerOf reads a breaker as it is stored, with the numbers of today.
func (s *Sim) breakerOf(row []byte, now model.Time, config breaker.Config) *breaker.Breaker {
	o, err := breaker.Decode(row)
	if err != nil {
		s.fail("breaker: %v", err)
	}
	if o.Status(now).Config != config {
		o.Configure(now, config)
	}
	return o
}

// found is what a node says while the ledger names nodes that are no more: it has looked at the claims of these shards, and counts those that the dead have made.
type found struct {
	Shards []model.ShardID
	Dead   []limit.Place
}

func foundKey(place limit.Place) store.SettingKey {
	return store.SettingKey{Kind: settingFound, Name: strconv.FormatInt(int64(place), 10)}
}

func (inc *incarnation) place() limit.Place { return limit.Place(inc.epoch) }

// viewed brings the limits up to date with who there is, after a renewal.
func (inc *incarnation) viewed(v *store.View) {
	if !inc.p.s.shared {
		return
	}
	b, f, book, now := inc.board, inc.p.flow, inc.board.keeper.book, inc.p.now()
	alive := map[limit.Place]bool{}
	for i := range v.Members {
		alive[limit.Place(v.Members[i].Epoch)] = true
	}
	book.SetAlone(len(v.Members) == 1)
	b.adopt(now, inc.alive)
	places := book.Places()
	var dead []limit.Place
	for p := range places {
		switch {
		case alive[p]:
		case inc.listed[p]: // a node that is on a page was a member before; this view was taken after it was seen there
			dead = append(dead, p)
		default:
			inc.member.Nudge()
		}
	}
	inc.listed = places
	slices.Sort(dead)
	clean := f.clean(v, alive, dead)
	if len(clean) > 0 {
		inc.p.s.did(opCleaned)
	}
	book.Clean(clean)
	b.settle(now)
	f.tell(nil)
	if !inc.searching {
		inc.searching = true
		inc.search(alive, dead, len(inc.member.Owned()))
	}
}

// clean are those of the dead whose claims have been found by the owners of all shards.
func (f *flow) clean(v *store.View, alive map[limit.Place]bool, dead []limit.Place) map[limit.Place]bool {
	said := map[limit.Place]found{}
	for p := range alive {
		var x found
		if s, ok := f.all[foundKey(p)]; ok && json.Unmarshal(s.Body, &x) == nil {
			said[p] = x
		}
	}
	all := map[limit.Place]bool{}
	for _, d := range dead {
		if !slices.ContainsFunc(v.Owners, func(o store.ShardOwner) bool {
			x, ok := said[limit.Place(o.Epoch)]
			return !ok || o.Node.IsZero() || !slices.Contains(x.Dead, d) || !slices.Contains(x.Shards, o.Shard)
		}) {
			all[d] = true
		}
	}
	return all
}

// search says which claims of the dead this node has found; nothing when there are none.
func (inc *incarnation) search(alive map[limit.Place]bool, dead []limit.Place, owned int) {
	f, over := inc.p.flow, func(error) { inc.searching = false }
	if len(dead) == 0 {
		f.forgetFound(inc.place(), alive, over)
		return
	}
	inc.known(owned, 0, func(shards []model.ShardID) {
		book := inc.board.keeper.book
		book.Post()
		mark := book.Mark()
		var land func(try int)
		land = func(try int) {
			f.flushed(func(err error) {
				switch {
				case err != nil || inc.ended:
					over(err)
				case book.Landed(&mark):
					inc.say(found{shards, dead}, over)
				case try == maxTries:
					over(nil) // the next renewal tries again
				default:
					land(try + 1)
				}
			})
		}
		land(0)
	})
}

// known asks lanes for the shards whose claims they know, until these are all.
func (inc *incarnation) known(owned, try int, then func([]model.ShardID)) {
	var shards []model.ShardID
	left := len(inc.shells)
	for _, sh := range inc.shells {
		sh.result(func(model.Time) {
			shards = append(shards, sh.lane.Known()...)
			if left--; left > 0 {
				return
			}
			if len(shards) < owned && try < maxTries { // they are being read
				inc.p.s.after(20*millisecond, inc.p, func() {
					if !inc.ended {
						inc.known(owned, try+1, then)
					}
				})
				return
			}
			slices.Sort(shards)
			then(shards)
		})
	}
}

// say stores what was found.
func (inc *incarnation) say(x found, then func(error)) {
	f, key := inc.p.flow, foundKey(inc.place())
	body, err := json.Marshal(x)
	if err != nil {
		inc.p.s.fail("claims of the dead: %v", err)
	}
	f.enter(func(leave func()) {
		if string(f.all[key].Body) == string(body) {
			leave()
			then(nil)
			return
		}
		f.put(store.Setting{SettingKey: key, Body: body}, func(_ bool, err error) {
			leave()
			if err == nil && !inc.ended {
				inc.p.s.did(opFound)
				inc.member.Nudge() // to look at it
				inc.loop()
			}
			then(err)
		})
	})
}

// forgetFound removes what this node has said about claims of the dead, since there are none to be found, and what nodes have said that are no more.
func (f *flow) forgetFound(place limit.Place, alive map[limit.Place]bool, then func(error)) {
	if len(f.obsolete(place, alive)) == 0 {
		then(nil)
		return
	}
	f.enter(func(leave func()) {
		old := f.obsolete(place, alive) // as they are now that it is its turn
		inTurn(len(old), func(i int, next func(error)) {
			f.ask("delete setting", true, func() error {
				_, err := f.p.s.disk.mem.DeleteSetting(background, old[i].SettingKey, old[i].Version)
				return err
			}, func(err error) {
				switch {
				case err == nil:
					delete(f.all, old[i].SettingKey)
					next(nil)
				case outrun(err):
					f.refresh(next)
				default:
					next(err)
				}
			})
		}, func(err error) {
			leave()
			then(err)
		})
	})
}

// obsolete are settings of nodes that are no more, and what this one has said about claims of the dead when there are none.
func (f *flow) obsolete(place limit.Place, alive map[limit.Place]bool) (old []store.Setting) {
	for _, key := range slices.SortedFunc(maps.Keys(f.all), store.SettingKey.Compare) {
		if key.Kind != settingFound {
			continue
		}
		if n, err := strconv.ParseInt(key.Name, 10, 64); err == nil && (!alive[limit.Place(n)] || limit.Place(n) == place) {
			old = append(old, f.all[key])
		}
	}
	return old
}

// leaveLimits gives back what this node has, before it ends in order. When that does not succeed, others find out that it is no more.
func (inc *incarnation) leaveLimits(then func()) {
	if !inc.p.s.shared {
		then()
		return
	}
	f, book := inc.p.flow, inc.board.keeper.book
	f.parting = inc.board
	book.Leave(inc.p.now())
	var try func(n int)
	try = func(n int) {
		f.flushed(func(err error) {
			if err != nil || n == maxTries || len(book.Due(inc.p.now())) == 0 {
				f.parting = nil
				then()
				return
			}
			try(n + 1)
		})
	}
	try(1)
}
