package notify

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// A payload is a list of hints, separated by spaces. Each hint is a letter for its kind, followed
// by its shard or node: m and a shard, c and a node, p and a node, s and a node, or v alone. A
// reader skips words that it does not know, so that nodes of different versions can talk.
//
// A hint of kind Requests has two words: m and the shard, for readers that do not know this kind,
// and r and the shard. The second word says that the first one is only about requests.

var nodeText = base64.RawURLEncoding

// Encode returns the hints in as few payloads as possible, each of at most the given size.
func Encode(hints map[Hint]struct{}, most int) (payloads []string) {
	var words []string
	for h := range hints {
		switch h.Kind {
		case Mail:
			words = append(words, "m"+strconv.Itoa(int(h.Shard)))
		case Requests:
			if _, more := hints[Hint{Kind: Mail, Shard: h.Shard}]; !more {
				words = append(words, "m"+strconv.Itoa(int(h.Shard)), "r"+strconv.Itoa(int(h.Shard)))
			}
		case Closed:
			words = append(words, "c"+nodeText.EncodeToString(h.Node[:]))
		case Peer:
			words = append(words, "p"+nodeText.EncodeToString(h.Node[:]))
		case Membership:
			words = append(words, "v")
		case Settings:
			words = append(words, "s"+nodeText.EncodeToString(h.Node[:]))
		}
	}

	slices.Sort(words)
	var b strings.Builder
	for _, w := range words {
		if b.Len()+len(w)+1 > most {
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

// Decode reads a payload.
func Decode(payload string) (hints []Hint) {
	for word := range strings.FieldsSeq(payload) {
		switch kind, rest := word[0], word[1:]; kind {
		case 'm', 'r':
			shard, err := strconv.ParseUint(rest, 10, 16)
			if err != nil || shard >= model.MaxShards {
				continue
			}
			h := Hint{Kind: Mail, Shard: model.ShardID(shard)}
			if kind == 'r' {
				hints = slices.DeleteFunc(hints, func(o Hint) bool { return o == h })
				h.Kind = Requests
			}
			hints = append(hints, h)
		case 'c', 's', 'p':
			h := Hint{Kind: Closed}
			switch kind {
			case 's':
				h.Kind = Settings
			case 'p':
				h.Kind = Peer
			}
			if raw, err := nodeText.DecodeString(rest); err == nil && len(raw) == len(h.Node) {
				copy(h.Node[:], raw)
				hints = append(hints, h)
			}
		case 'v':
			if rest == "" {
				hints = append(hints, Hint{Kind: Membership})
			}
		}
	}

	return hints
}
