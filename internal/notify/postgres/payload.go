package postgres

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
)

// A payload is a list of hints, separated by spaces: m and a shard, c and a node, p and a node, v,
// s and a node. A reader skips words that it does not know, so that nodes of different versions can
// talk.

// mostPayload is the maximum size of a payload in PostgreSQL, with some room.
const mostPayload = 7900

var nodeText = base64.RawURLEncoding

// encode returns the hints in as few payloads as possible.
func encode(hints map[notify.Hint]struct{}) (payloads []string) {
	var words []string
	for h := range hints {
		switch h.Kind {
		case notify.Mail:
			words = append(words, "m"+strconv.Itoa(int(h.Shard)))
		case notify.Closed:
			words = append(words, "c"+nodeText.EncodeToString(h.Node[:]))
		case notify.Peer:
			words = append(words, "p"+nodeText.EncodeToString(h.Node[:]))
		case notify.Membership:
			words = append(words, "v")
		case notify.Settings:
			words = append(words, "s"+nodeText.EncodeToString(h.Node[:]))
		}
	}

	slices.Sort(words)
	var b strings.Builder
	for _, w := range words {
		if b.Len()+len(w)+1 > mostPayload {
			payloads = append(payloads, b.String())
			b.Reset()
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w)
	}

	if b.Len() > 0 {
		payloads = append(payloads, b.String())
	}
	return payloads
}

// decode reads a payload.
func decode(payload string) (hints []notify.Hint) {
	for word := range strings.FieldsSeq(payload) {
		switch kind, rest := word[0], word[1:]; kind {
		case 'm':
			if shard, err := strconv.ParseUint(rest, 10, 16); err == nil && shard < model.MaxShards {
				hints = append(hints, notify.Hint{Kind: notify.Mail, Shard: model.ShardID(shard)})
			}
		case 'c', 's', 'p':
			h := notify.Hint{Kind: notify.Closed}
			switch kind {
			case 's':
				h.Kind = notify.Settings
			case 'p':
				h.Kind = notify.Peer
			}
			if raw, err := nodeText.DecodeString(rest); err == nil && len(raw) == len(h.Node) {
				copy(h.Node[:], raw)
				hints = append(hints, h)
			}
		case 'v':
			if rest == "" {
				hints = append(hints, notify.Hint{Kind: notify.Membership})
			}
		}
	}

	return hints
}
