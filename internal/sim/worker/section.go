package worker

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// askSection adds what a section asks for.
//
//arch:parameters as hold.ask, with the block
func (h *Hold) askSection(m *scenario.Machine, blk *scenario.Block, b, a int, x *scenario.Ask, add func(mk mark, event bool, c model.Command)) {
	section := m.Program.Ids[b][scenario.AskLock]
	switch {
	case a == scenario.AskLock && !x.Recorded && !x.Gone:
		add(markStarted, true, model.Command{Kind: model.CommandLock, Event: model.Event{Kind: model.EventLockAsked, Locks: blk.Locks}})
	case (a == scenario.AskFirst || a == scenario.AskSecond) && !x.Recorded && !x.Gone:
		i := a - scenario.AskFirst
		d := blk.Deeds[i]
		d.ID = scenario.Follows(scenario.SendID(m.Start.Run, b), m.Program.Ids[b][a])
		msg := model.Message{Kind: model.MessageCall, To: blk.Targets[i], Name: blk.Names[i], Input: d.Input()}
		add(markStarted, true, model.Command{Kind: model.CommandSend, Message: &msg, Event: model.Event{Name: msg.Name, Target: msg.To, Section: section}})
	case a == scenario.AskUnlock && !x.Recorded:
		add(markStarted, true, model.Command{Kind: model.CommandUnlock, Event: model.Event{Kind: model.EventUnlocked, Section: section}})
	}
}
