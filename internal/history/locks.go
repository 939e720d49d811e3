package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// section is a part of a history in which the code has entities locked. asked, granted and over are
// the positions at which the code asked for the locks, got the last lock, and ended the section.
type section struct {
	asked, granted, over int64 // 0 if that did not happen
	locks                []model.Address
	missing              int // locks that are not granted
}

// isHeldAt reports whether a run that continues after the position would have to hold the locks.
func (s *section) isHeldAt(at int64) bool {
	return s.granted > 0 && s.granted <= at && (s.over == 0 || at < s.over)
}

// sections returns the sections of a history, in order.
func sections(events []model.Event) []*section {
	var all []*section
	open := map[string]*section{}
	for i := range events {
		e := &events[i]
		s := open[e.ID]
		switch {
		case e.Kind == model.EventLockAsked:
			s = &section{asked: e.Seq, locks: e.Locks, missing: len(e.Locks)}
			all, open[e.ID] = append(all, s), s
		case s == nil:
		case e.Kind == model.EventLockGranted:
			if s.missing--; s.missing == 0 {
				s.granted = e.Seq
			}
		case endsLock(e):
			s.over = e.Seq
			delete(open, e.ID)
		}
	}

	return all
}

// endsLock reports whether an event ends its section.
func endsLock(e *model.Event) bool {
	return e.Kind == model.EventUnlocked || e.Kind == model.EventWithdrawn || e.Kind == model.EventAnswered
}

// outsideOfLocks refuses a place at which the code has entities locked, because a run that begins
// with a past holds no locks.
func (c *cutter) outsideOfLocks(at int64) error {
	all := sections(c.h.Events)
	in := func(at int64) *section {
		if i := slices.IndexFunc(all, func(s *section) bool { return s.isHeldAt(at) }); i >= 0 {
			return all[i]
		}
		return nil
	}

	s := in(at)
	if s == nil {
		return nil
	}

	// The error names the nearest places before and after the section.
	before := s.asked - 1
	for o := in(before); o != nil; o = in(before) {
		before = o.asked - 1
	}
	until, places := "to the end of the history", fmt.Sprintf("position %d is possible", before)

	if s.over > 0 {
		until = fmt.Sprintf("to event %d", s.over)
		behind := s.over
		for o := in(behind); o != nil && behind > 0; o = in(behind) {
			behind = o.over
		}
		if behind > 0 {
			places = fmt.Sprintf("positions %d and %d are possible", before, behind)
		}
	}

	var names []string
	for _, a := range s.locks {
		names = append(names, a.EntityName())
	}
	return fault.New(fault.Invalid, "position %d is inside the lock of %s, from event %d %s, and a run that begins there would not hold it: %s",
		at, strings.Join(names, ", "), s.asked, until, places)
}

// waitingLocks returns the sections that do not have all their locks among the kept events. The cut
// leaves them out, so that the code asks again. The grants in the history belong to the source.
func (c *cutter) waitingLocks() map[string]bool {
	waiting := map[string]bool{}
	for i := range c.events {
		if e := &c.events[i]; e.Kind == model.EventLockAsked {
			waiting[e.ID] = true
		} else if endsLock(e) {
			delete(waiting, e.ID)
		}
	}
	return waiting
}
