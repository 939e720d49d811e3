package pgproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Types of messages that clients send. The proxy forwards all others without looking at them.
const (
	msgBind         = 'B'
	msgClose        = 'C'
	msgCopyDone     = 'c'
	msgCopyFail     = 'f'
	msgExecute      = 'E'
	msgFunctionCall = 'F'
	msgParse        = 'P'
	msgQuery        = 'Q'
	msgSync         = 'S'
	msgDescribe     = 'D'
)

// Types of messages that servers send.
const (
	msgBackendKeyData  = 'K'
	msgCommandComplete = 'C'
	msgErrorResponse   = 'E'
	msgReadyForQuery   = 'Z'
)

// Codes of messages without a type, with which a connection starts.
const (
	codeCancel = 80877102
	codeSSL    = 80877103
	codeGSS    = 80877104
)

// maxMessage is PostgreSQL's own limit. A message with a larger length is not of this protocol.
const maxMessage = 1 << 30

// appendMessage reads a message and appends it, header included, to buf.
func appendMessage(buf []byte, r *bufio.Reader) (_ []byte, err error) {
	header, err := r.Peek(5)
	if err != nil {
		if len(header) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return buf, err
	}
	length := int(binary.BigEndian.Uint32(header[1:]))
	if length < 4 || length > maxMessage {
		return buf, fmt.Errorf("message %q has length %d: not the PostgreSQL protocol", header[0], length)
	}
	return appendN(buf, r, 1+length)
}

// appendStartup reads a message without a type, as at the start of a connection, and also returns
// its code.
func appendStartup(buf []byte, r *bufio.Reader) (_ []byte, code uint32, err error) {
	header, err := r.Peek(8)
	if err != nil {
		return buf, 0, err
	}
	length := int(binary.BigEndian.Uint32(header))
	if length < 8 || length > 10000 { // the server has the same limit
		return buf, 0, fmt.Errorf("first message has length %d: not the PostgreSQL protocol", length)
	}
	code = binary.BigEndian.Uint32(header[4:])
	buf, err = appendN(buf, r, length)
	return buf, code, err
}

// appendN reads n bytes and appends them to buf. It allocates memory only as the bytes arrive,
// because n may be wrong.
func appendN(buf []byte, r io.Reader, n int) ([]byte, error) {
	for n > 0 {
		chunk := min(n, 1<<20)
		at := len(buf)
		buf = append(buf, make([]byte, chunk)...)
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return buf, err
		}
		n -= chunk
	}
	return buf, nil
}

// text takes a zero-terminated string from the front of a message's body.
func text(body []byte) (_ string, rest []byte) {
	value, rest, _ := bytes.Cut(body, []byte{0})
	return string(value), rest
}

// startupParameters reads the parameters of a startup message: user, database, application_name and
// so on.
func startupParameters(message []byte) map[string]string {
	parameters := map[string]string{}
	for body := message[8:]; len(body) > 1; {
		var name, value string
		name, body = text(body)
		value, body = text(body)
		parameters[name] = value
	}
	return parameters
}

// sqlState reads the SQLSTATE of an ErrorResponse.
func sqlState(body []byte) string {
	for len(body) > 1 {
		field := body[0]
		var value string
		value, body = text(body[1:])
		if field == 'C' {
			return value
		}
	}
	return ""
}
