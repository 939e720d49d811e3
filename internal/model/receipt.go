package model

import (
	"context"
	"strings"
)

// DrawnIDs is the prefix of request ids that a client of a server has drawn at random, because its
// caller gave none. No other request has such an id.
const DrawnIDs = "~"

// MaxEra bounds the name of an era, in bytes.
const MaxEra = 32

// DrawnID returns an id for a request whose caller gave none. random is a text that no client has
// used before. era is the era (a period in which clients draw ids) that the server last sent to the
// client; empty if the client does not know one. See lane/eras.go.
func DrawnID(random, era string) string {
	if era == "" {
		return DrawnIDs + random
	}
	return DrawnIDs + random + "." + era
}

// IsDrawnID reports whether a client of a server has drawn a request id.
func IsDrawnID(id string) bool { return strings.HasPrefix(BareRequestID(id), DrawnIDs) }

// EraOf returns the era in which a client has drawn a request id. It is empty for other ids, and if
// the client did not know an era.
func EraOf(id string) string {
	if !IsDrawnID(id) {
		return ""
	}
	_, era, _ := strings.Cut(id, ".")
	return era
}

// Receipt is what the engine tells a server about a request of a client, in addition to the answer.
// The engine fills it in.
type Receipt struct {
	// Forget removes the remembered answer once the client has received it. It is nil if the answer
	// must stay, because another copy of the request may still arrive.
	Forget func()
	// Era is the era in which clients draw ids now; empty if this node does not know it.
	Era string
}

type receiptKey struct{}

// WithReceipt asks the engine to fill in the receipt of the request that is made with the context.
func WithReceipt(ctx context.Context, r *Receipt) context.Context {
	return context.WithValue(ctx, receiptKey{}, r)
}

// ReceiptOf returns the receipt to fill in; nil if there is none.
func ReceiptOf(ctx context.Context) *Receipt {
	r, _ := ctx.Value(receiptKey{}).(*Receipt)
	return r
}
