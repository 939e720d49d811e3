package engine

import (
	"sync"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/telemetry"
)

// notices remembers which unreadable rows were logged, by the kind of read that found them, so that
// each problem is logged once.
type notices struct {
	mu   sync.Mutex
	said map[lane.LoadKind]string
}

// news reports whether a text differs from the last one of its kind, and keeps it.
func (n *notices) news(k lane.LoadKind, text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.said[k] == text {
		return false
	}
	if n.said == nil {
		n.said = map[lane.LoadKind]string{}
	}
	n.said[k] = text
	return text != ""
}

// passedOver logs the rows that a read has skipped, once until they change.
func (s *laneShell) passedOver(k lane.LoadKind, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if s.notices.news(k, text) {
		s.eng.cfg.Meter.Add(telemetry.SetAside, 1, string(model.WaitCorrupt))
		s.log.Error("rows that cannot be read are passed over; everything else goes on", "error", err)
	}
}

// setAside logs that the lane has set a row aside.
func (s *laneShell) setAside(why string, newer bool) {
	if newer {
		s.eng.cfg.Meter.Add(telemetry.SetAside, 1, string(model.WaitNewer))
		s.log.Warn("a message of a newer version waits until a node of that version owns its shard; everything else goes on", "reason", why)
		return
	}
	s.eng.cfg.Meter.Add(telemetry.SetAside, 1, string(model.WaitCorrupt))
	s.log.Error("a row that cannot be read was set aside; perdure doctor counts them, App.DeadLetters lists messages; everything else goes on", "reason", why)
}
