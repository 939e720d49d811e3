package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

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

// news reports whether a text says something, and differs from the last text of its kind. It
// remembers the text.
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

// passedOver logs the rows that a read has skipped. It logs them again only if they change.
func (s *laneShell) passedOver(k lane.LoadKind, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if s.notices.news(k, text) {
		s.eng.cfg.Meter.Add(telemetry.SetAside, 1, string(model.WaitCorrupt))
		s.log.Error("rows that cannot be read are skipped; everything else continues", "error", err)
	}
}

// asideLines is how many of the rows that a lane sets aside get a line of their own in the log, per
// minute.
const asideLines = 20

// asideLog bounds the lines about rows that a lane sets aside, because a newer build or a damaged
// disk can leave any number of such rows. Only the lane uses it.
type asideLog struct {
	since   time.Time // when the minute began
	lines   int       // lines logged in this minute
	skipped int       // rows without a line
}

// next counts a row. It reports whether the row gets a line in the log, and what that line says
// about rows without a line.
func (a *asideLog) next(now time.Time) (line bool, about []any) {
	if now.Sub(a.since) >= time.Minute {
		if a.skipped > 0 {
			about = []any{"unlogged", a.skipped}
		}
		*a = asideLog{since: now}
	}
	if a.lines == asideLines {
		a.skipped++
		return false, nil
	}
	if a.lines++; a.lines == asideLines {
		about = append(about, "further", "they get no line within this minute")
	}
	return true, about
}

// setAside logs that the lane has set a row aside.
func (s *laneShell) setAside(why string, newer bool) {
	code, level := model.WaitCorrupt, slog.LevelError
	text := "a row that cannot be read was set aside; perdure doctor counts messages, App.DeadLetters lists them; everything else continues"
	if newer {
		code, level = model.WaitNewer, slog.LevelWarn
		text = "a message of a newer version waits until a node of that version owns its shard; everything else continues"
	}
	s.eng.cfg.Meter.Add(telemetry.SetAside, 1, string(code))
	if line, about := s.aside.next(time.Now()); line {
		//nolint:sloglint // one of two constants
		s.log.Log(context.Background(), level, text, append([]any{"reason", why}, about...)...)
	}
}
