package engine

import (
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
)

// Asked hears questions of other nodes; see peer.Handler.
func (inc *incarnation) Asked(from model.NodeID, question []byte, answer func([]byte)) {
	p, err := peer.Decode[peer.Poll](question)
	if err != nil {
		inc.eng.cfg.Log.Warn("cannot read what another node asks; is it of another version?", "node", from.String(), "error", err)
		return
	}
	inc.borrowing.polled(from, p, answer)
}

// Told hears words of other nodes.
func (inc *incarnation) Told(from model.NodeID, word []byte) {
	k, err := peer.Decode[peer.Knock](word)
	if err != nil {
		inc.eng.cfg.Log.Warn("cannot read what another node says; is it of another version?", "node", from.String(), "error", err)
		return
	}
	inc.lending.knocked(from, k)
}
