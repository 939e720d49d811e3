package wire

import (
	"slices"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// unknownEnum is the number of a word that the protocol does not know. Every reader refuses it.
const unknownEnum = -1

// The protocol uses the numbers of package model for these enums, so only their range has to be
// checked.

func readStatus(s pb.Status) (model.Status, error) {
	return readEnum[model.Status]("status", s, pb.Status_name)
}

func readReuse(p pb.ReusePolicy) (model.ReusePolicy, error) {
	return readEnum[model.ReusePolicy]("policy for used keys", p, pb.ReusePolicy_name)
}

func readParentClose(p pb.ParentClosePolicy) (model.ParentClosePolicy, error) {
	return readEnum[model.ParentClosePolicy]("policy for children", p, pb.ParentClosePolicy_name)
}

func readStreamKind(k pb.StreamKind) (model.ItemKind, error) {
	return readEnum[model.ItemKind]("kind of streamed items", k, pb.StreamKind_name)
}

// readEnum checks that the protocol has a name for the number, and converts the number.
func readEnum[T ~uint8, E ~int32](what string, e E, names map[int32]string) (T, error) {
	if _, known := names[int32(e)]; !known {
		return 0, fault.New(fault.Invalid, "there is no %s %d", what, e)
	}
	return T(e), nil
}

// Each of these lists has words of package model or package api. In the protocol, a word is a
// number: the index of the word in its list. The empty text is 0.
var (
	mailboxVerbs  = words("", model.MailboxList, model.MailboxShow, model.MailboxSkip, model.MailboxDrop, model.MailboxDropNamed, model.MailboxInterrupt)
	limitScopes   = words("", api.PerQueue, api.PerKind, "tenant", api.PerKey, api.PerName)
	breakerStates = words("", "closed", "open", "half_open")
)

// words returns a list of words of one type.
func words[W ~string](ws ...W) []W { return ws }

// wordNumber returns the number of a word, or unknownEnum.
func wordNumber[E ~int32, W ~string](words []W, word W) E {
	if i := slices.Index(words, word); i >= 0 {
		return E(i)
	}
	return unknownEnum
}

// readWord returns the word of a number.
func readWord[W ~string, E ~int32](what string, words []W, e E) (W, error) {
	if e < 0 || int(e) >= len(words) {
		return "", fault.New(fault.Invalid, "there is no %s %d", what, e)
	}
	return words[e], nil
}
