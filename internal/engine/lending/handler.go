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

// HandleQuestion receives questions of other nodes. These are polls of nodes that lend.
func (h PeerHandler) HandleQuestion(from model.NodeID, question []byte, answer func([]byte)) {
	p, err := peer.Decode[peer.Poll](question)
	if err != nil {
		h.Log.Warn("cannot read what another node asks; is it of another version?", "node", from.String(), "error", err)
		return
	}
	h.Borrower.HandlePoll(from, p, answer)
}

// HandleNote receives notes of other nodes. These are knocks of nodes that want to borrow.
func (h PeerHandler) HandleNote(from model.NodeID, word []byte) {
	k, err := peer.Decode[peer.Knock](word)
	if err != nil {
		h.Log.Warn("cannot read what another node says; is it of another version?", "node", from.String(), "error", err)
		return
	}
	h.Lender.HandleKnock(from, k)
}
