package peerlink

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"net"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const (
	// protocol is the version of the frames and of their contents. A node refuses nodes of other
	// versions, and sends requests to them through the store.
	protocol = 1

	handshakeTime = 5 * time.Second
	maxHello      = 4 << 10 // bytes
)

// hello is the first frame of the dialing side.
type hello struct {
	Protocol int          `cbor:"1,keyasint"`
	Cluster  string       `cbor:"2,keyasint"`
	Schema   int          `cbor:"3,keyasint"`
	From     model.NodeID `cbor:"4,keyasint"`
	To       model.NodeID `cbor:"5,keyasint"`
	Link     model.RunID  `cbor:"6,keyasint"`
	Marks    bool         `cbor:"7,keyasint,omitempty"` // the sender returns marks
}

// welcome is the first frame of the accepting side. An empty refusal accepts the connection.
type welcome struct {
	Refusal string `cbor:"1,keyasint,omitempty"`
	Marks   bool   `cbor:"2,keyasint,omitempty"`
}

// refusal returns why a node refuses a hello. It returns an empty text if the node accepts it.
func (m *Member) refusal(h *hello) string {
	switch {
	case h.Protocol != protocol:
		return "version " + itoa(h.Protocol) + " of the protocol between nodes; this node speaks version " + itoa(protocol)
	case h.Cluster != m.Cluster:
		return "cluster " + h.Cluster + "; this node belongs to cluster " + m.Cluster
	case h.Schema != m.Schema:
		return "version " + itoa(h.Schema) + " of the schema; this node has opened version " + itoa(m.Schema)
	case h.To != m.Self:
		return "a connection to node " + h.To.String() + "; this is node " + m.Self.String()
	case !isBefore(h.From, m.Self):
		return "a connection from node " + h.From.String() + "; the node with the lower id dials"
	}
	return ""
}

// writeValue sends one value as a frame.
func writeValue(c net.Conn, v any) error {
	body, err := cbor.Marshal(v)
	if err != nil {
		return fault.New(fault.Internal, "encode a greeting: %w", err)
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// readValue receives one value as a frame.
func readValue(r *bufio.Reader, v any) error {
	// The deadline of the handshake applies.
	frame, err := readFrame(r, maxHello, func() error { return nil })
	if err != nil {
		return err
	}
	if err := cbor.Unmarshal(frame, v); err != nil {
		return fault.New(fault.Invalid, "read a greeting: %w", err)
	}
	return nil
}

// greet is the handshake of the dialing side.
func (m *Member) greet(raw net.Conn, config *tls.Config, p *Peer, link model.RunID) (stream, error) {
	c := tls.Client(raw, config)
	r := bufio.NewReaderSize(c, readBuffer)
	if err := c.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return stream{}, err
	}
	if err := c.Handshake(); err != nil {
		return stream{}, err
	}
	if err := writeValue(c, hello{Protocol: protocol, Cluster: m.Cluster, Schema: m.Schema, From: m.Self, To: p.Node, Link: link, Marks: true}); err != nil {
		return stream{}, err
	}
	var w welcome
	if err := readValue(r, &w); err != nil {
		return stream{}, err
	}
	if w.Refusal != "" {
		return stream{}, fault.New(fault.Denied, "the node refuses %s", w.Refusal)
	}
	return stream{Conn: c, r: r, marks: w.Marks}, c.SetDeadline(time.Time{})
}
