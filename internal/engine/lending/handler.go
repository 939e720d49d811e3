package lending

import (
	"log/slog"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
)

// PeerHandler implements peer.Handler: it receives the messages of other nodes.
type PeerHandler struct {
	Borrower *Borrower
	Lender   *Lender
	Log      *slog.Logger
}

// Asked receives questions of other nodes, which are polls: they lend.
func (h PeerHandler) Asked(from model.NodeID, question []byte, answer func([]byte)) {
	p, err := peer.Decode[peer.Poll](question)
	if err != nil {
		h.Log.Warn("cannot read what another node asks; is it of another version?", "node", from.String(), "error", err)
		return
	}
	h.Borrower.Polled(from, p, answer)
}

// Told receives notes of other nodes, which are knocks: they want to borrow.
func (h PeerHandler) Told(from model.NodeID, word []byte) {
	k, err := peer.Decode[peer.Knock](word)
	if err != nil {
		h.Log.Warn("cannot read what another node says; is it of another version?", "node", from.String(), "error", err)
		return
	}
	h.Lender.Knocked(from, k)
}
