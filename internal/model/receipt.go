package model

import "context"

// DrawnIDs begins a request id that a client of a server has drawn, because its caller gave none.
// No other request has it.
const DrawnIDs = "~"

// Receipt lets a server remove the remembered answer to a request once the client has received it.
type Receipt struct {
	// Forget removes the answer. The engine sets it. It stays nil if the answer must stay, because
	// another copy of the request may still arrive.
	Forget func()
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
