package peerlink

import (
	"bufio"
	"encoding/binary"
	"io"

	"github.com/perdure/perdure/internal/fault"
)

// A frame is its length in four bytes, and then items. An empty frame only says that the sender is
// alive. An item is a kind in one byte, a number in eight, the length of its body in four, and the
// body.
const (
	lengthBytes = 4
	headerBytes = 13
)

// Kinds of items.
const (
	itemRequest = 'q' // the sender chooses the number
	itemReply   = 'r' // the number is that of the request
	itemNone    = 'x' // there is no reply: it is too large, or too many requests wait for replies
	itemCancel  = 'c' // the sender no longer waits for the reply to its request
	itemNote    = 'n'
	itemCredit  = 'g' // the number is how many items were taken, the body how many bytes they had
	itemMark    = 'm' // the other side returns the number as an echo
	itemEcho    = 'e'
)

// item is something to send. It has a body, or a function that appends the body.
type item struct {
	kind   byte
	number uint64
	body   []byte
	append func(dst []byte) []byte
	size   int    // roughly the size of the body
	since  uint64 // the last mark that the other side had returned when this item arrived
}

// appendItem appends an item to a frame.
func appendItem(dst []byte, it *item) []byte {
	start := len(dst)
	dst = append(dst, it.kind)
	dst = binary.BigEndian.AppendUint64(dst, it.number)
	dst = append(dst, 0, 0, 0, 0)
	if it.append != nil {
		dst = it.append(dst)
	} else {
		dst = append(dst, it.body...)
	}

	size := len(dst) - start - headerBytes
	if size > maxItem {
		dst = dst[:start+headerBytes]
		dst[start], size = itemNone, 0
	}
	binary.BigEndian.PutUint32(dst[start+headerBytes-4:], uint32(size))
	return dst
}

// readFrame reads a frame of at most the given size. It calls listen before it waits for a part of
// the frame. The caller owns the returned bytes.
func readFrame(r *bufio.Reader, most int, listen func() error) ([]byte, error) {
	var head [lengthBytes]byte
	if err := listen(); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > uint32(most) {
		return nil, fault.New(fault.Invalid, "a frame of %d bytes, at most %d", size, most)
	}

	frame := make([]byte, size)
	for rest := frame; len(rest) > 0; {
		if err := listen(); err != nil {
			return nil, err
		}
		n, err := io.ReadFull(r, rest[:min(len(rest), partBytes)])
		if err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return frame, nil
}

// nextItem cuts the first item off a frame.
func nextItem(frame []byte) (it item, rest []byte, err error) {
	if len(frame) < headerBytes {
		return it, nil, fault.New(fault.Invalid, "a frame ends inside an item")
	}
	size := int(binary.BigEndian.Uint32(frame[headerBytes-4:]))
	if size > len(frame)-headerBytes {
		return it, nil, fault.New(fault.Invalid, "an item of %d bytes is longer than its frame", size)
	}
	end := headerBytes + size
	return item{kind: frame[0], number: binary.BigEndian.Uint64(frame[1:]), body: frame[headerBytes:end:end]}, frame[end:], nil
}
