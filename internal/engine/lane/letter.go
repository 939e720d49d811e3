package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// decide says what becomes of a message.
func (l *Lane) decide(now model.Time, e *entry, in *messageInput) (*core.Execution, core.Decision) {
	m := in.origin.message
	if in.reported() {
		return e.x, core.Decision{Answer: model.Answer{Run: m.ToRun, Status: in.fate.Status}} // once more
	}
	if !in.aboutLetter() {
		return core.Deliver(e.x, m, now, l.newRunFor(m), l.cfg.Limits)
	}
	var letter *core.Letter
	if in.letter != nil {
		if err := in.letter.err; err != nil {
			return e.x, core.Decision{Answer: model.Answer{Failure: &model.Failure{Kind: fault.KindOf(err).String(), Message: err.Error()}}}
		}
		letter = in.letter.letter
	}
	return core.DeliverLetter(e.x, m, letter, now, l.newRunFor(m))
}
