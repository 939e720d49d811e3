// Package shop is what the worker and the client share: names and types, without any code.
package shop

import "github.com/perdure/perdure"

// Order is what a customer orders.
type Order struct {
	Customer string
	Cents    int
}

// The contract of the two programs. The worker binds code to these names; the client only calls
// them.
var (
	Checkout = perdure.DeclareWorkflow[Order, string]("checkout")
	Charge   = perdure.DeclareActivity[Order, string]("charge")
	Approved = perdure.NewSignal[string]("approved")
)
