// Package shop has the names and types that the worker and the client share. It has no code.
package shop

import "github.com/perdure/perdure"

// Order is what a customer orders.
type Order struct {
	Customer string
	Cents    int
}

// These are the contract between the two programs. The worker binds code to these names; the client
// only calls them.
var (
	Checkout = perdure.DeclareWorkflow[Order, string]("checkout")
	Charge   = perdure.DeclareActivity[Order, string]("charge")
	Approved = perdure.NewSignal[string]("approved")
)
