package authn

import "context"

// Doors: the ways in which a call reaches a server or a store.
const (
	DoorGRPC   = "grpc"
	DoorREST   = "rest"
	DoorFlovyn = "flovyn"
	DoorSocket = "socket" // the socket next to a file that a program has open
	DoorStore  = "store"  // a command that has opened the store itself
)

// Call is the caller of a call, and the door through which the call came.
type Call struct {
	Identity

	Door string
	// From is the address of the caller; empty if the door does not know it.
	From string
}

type callKey struct{}

// WithCall adds the caller to the context of a call.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, &c)
}

// CallOf returns the caller in a context. It returns nil for a call that came through no door, such
// as a call of the program itself.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}
