package peerlink

import (
	"sync"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Request is a request of another node.
type Request struct {
	From model.NodeID
	Link model.RunID // the connection that brought it
	// Since is the last mark that the other node had returned before it sent the request. At that
	// time the other node still used the connection. See Net.Mark.
	Since uint64
	Body  []byte // only until HandleRequest returns

	conn   *conn
	number uint64

	mu       sync.Mutex
	canceled bool
	onCancel func()
}

// Reply answers the request. It does not block. The connection calls appendTo when it sends the
// reply. size is roughly the size of the reply.
func (r *Request) Reply(size int, appendTo func(dst []byte) []byte) {
	c := r.conn
	c.mu.Lock()
	if c.why != nil || c.serving[r.number] != r { // the caller no longer waits
		c.mu.Unlock()
		return
	}
	delete(c.serving, r.number)
	c.add(item{kind: itemReply, number: r.number, append: appendTo, size: size})
	full := c.outBytes > maxReplies
	c.mu.Unlock()
	if full {
		go c.fail(fault.New(fault.Exhausted, "node %s does not read its replies", c.peer))
	}
}

// IsWaiting reports whether the caller still waits, as far as this side of the connection knows.
func (r *Request) IsWaiting() bool {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return r.conn.why == nil && r.conn.serving[r.number] == r
}

// OnCancel sets the function to call when the caller no longer waits. If the caller has already
// stopped waiting, OnCancel calls the function immediately.
func (r *Request) OnCancel(do func()) {
	r.mu.Lock()
	canceled := r.canceled
	r.onCancel = do
	r.mu.Unlock()
	if canceled {
		do()
	}
}

// cancel notes that the caller no longer waits.
func (r *Request) cancel() {
	r.mu.Lock()
	do := r.onCancel
	r.canceled, r.onCancel = true, nil
	r.mu.Unlock()
	if do != nil {
		do()
	}
}
