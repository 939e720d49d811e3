package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// This file encodes the frontend messages of a commit. The driver could do it, but writing binary
// arrays directly into one buffer costs a fraction of the CPU. It also makes clear what the store
// had sent when something went wrong.

// Object ids of parameter types.
const (
	oidBool  = 16
	oidBytea = 17
	oidInt8  = 20
	oidInt2  = 21
	oidInt4  = 23
	oidText  = 25
	oidUUID  = 2950
)

// mostMessage is the maximum size of a message that PostgreSQL accepts, with some margin.
const mostMessage = 1<<30 - 1<<16

var errTooLarge = errors.New("rows of one table are larger than 1 GiB together, more than PostgreSQL takes in one statement")

// encoder builds the messages of one pipeline.
type encoder struct {
	buf   []byte
	sent  []*statement // in the order of their Execute messages
	start int          // position of the open Bind message
	param int          // position of the open parameter
	err   error        // the first error; if set, the pipeline must not be sent
}

// reset makes room for about size bytes. It keeps a large buffer only as long as batches need it.
func (e *encoder) reset(size int) {
	const small, most = 1 << 20, 16 << 20
	if have := cap(e.buf); have > most || have > small && len(e.buf) < have/4 {
		e.buf = nil
	}
	e.buf, e.sent, e.err = slices.Grow(e.buf[:0], min(size+size/8, most)), e.sent[:0], nil
}

// parse sends the text of a statement. An empty name means the unnamed statement, which the next
// parse replaces.
func (e *encoder) parse(name, sql string) {
	at := e.open('P')
	e.cstring(name)
	e.cstring(sql)
	e.buf = append(e.buf, 0, 0) // the statement determines the types
	e.close(at)
}

// bind begins the execution of a statement. The caller then adds the parameters and calls execute.
func (e *encoder) bind(name string, st *statement) {
	e.start = e.open('B')
	e.buf = append(e.buf, 0) // unnamed portal
	e.cstring(name)
	e.buf = append(e.buf, 0, 1, 0, 1) // all parameters are binary
	e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(st.params))
	e.sent = append(e.sent, st)
}

// execute ends the parameters of the open Bind message and adds the messages that execute it.
func (e *encoder) execute() {
	e.buf = append(e.buf, 0, 1, 0, 1) // all results are binary
	if len(e.buf)-e.start > mostMessage {
		e.fail(errTooLarge)
	}
	e.close(e.start)
	e.buf = append(e.buf, 'E', 0, 0, 0, 9, 0, 0, 0, 0, 0) // unnamed portal, all rows
}

// sync ends the pipeline and with it the transaction.
func (e *encoder) sync() { e.buf = append(e.buf, 'S', 0, 0, 0, 4) }

func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// open begins a message and returns the position of its length.
func (e *encoder) open(kind byte) int {
	e.buf = append(e.buf, kind, 0, 0, 0, 0)
	return len(e.buf) - 4
}

func (e *encoder) close(at int) { binary.BigEndian.PutUint32(e.buf[at:], uint32(len(e.buf)-at)) }

func (e *encoder) cstring(s string) { e.buf = append(append(e.buf, s...), 0) }

// Single parameters.

func (e *encoder) int2(v int16) { e.buf = append(e.buf, 0, 0, 0, 2, byte(uint16(v)>>8), byte(v)) }

func (e *encoder) shard(v model.ShardID) {
	if v > math.MaxInt16 {
		e.fail(fmt.Errorf("shard %d is beyond what a store can have", v))
	}
	e.int2(int16(v))
}

// body appends an encoded value. Nil becomes null.
func (e *encoder) body(value func(dst []byte) []byte) {
	head := len(e.buf)
	e.buf = append(e.buf, 0xff, 0xff, 0xff, 0xff)
	v := value(e.buf)
	switch {
	case v == nil: // null
	case len(v)-e.start > mostMessage:
		e.fail(errTooLarge)
	default:
		binary.BigEndian.PutUint32(v[head:], uint32(len(v)-head-4))
		e.buf = v
	}
}

func (e *encoder) int4(v int32) {
	e.buf = binary.BigEndian.AppendUint32(append(e.buf, 0, 0, 0, 4), uint32(v))
}

func (e *encoder) int8(v int64) {
	e.buf = binary.BigEndian.AppendUint64(append(e.buf, 0, 0, 0, 8), uint64(v))
}

func (e *encoder) uuid(v [16]byte) {
	e.buf = append(append(e.buf, 0, 0, 0, 16), v[:]...)
}

// Array parameters: one call per column, with the number of rows and a function that returns each
// value.

// array begins an array, and endParameter ends it. In between, the caller appends the elements,
// each with its length.
func (e *encoder) array(oid uint32, n int) {
	e.param = len(e.buf)
	b := append(e.buf, 0, 0, 0, 0) // length of the parameter
	b = append(b, 0, 0, 0, 1)      // dimensions
	b = append(b, 0, 0, 0, 0)      // flags: PostgreSQL finds nulls itself
	b = binary.BigEndian.AppendUint32(b, oid)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	e.buf = append(b, 0, 0, 0, 1) // lower bound
}

func (e *encoder) endParameter() {
	n := len(e.buf) - e.param - 4
	if n > mostMessage {
		e.fail(errTooLarge)
	}
	binary.BigEndian.PutUint32(e.buf[e.param:], uint32(n))
}

func (e *encoder) bools(n int, value func(i int) bool) {
	e.array(oidBool, n)
	for i := range n {
		v := byte(0)
		if value(i) {
			v = 1
		}
		e.buf = append(e.buf, 0, 0, 0, 1, v)
	}
	e.endParameter()
}

func (e *encoder) int2s(n int, value func(i int) int16) {
	e.array(oidInt2, n)
	for i := range n {
		e.int2(value(i))
	}
	e.endParameter()
}

func (e *encoder) shards(n int, value func(i int) model.ShardID) {
	e.array(oidInt2, n)
	for i := range n {
		e.shard(value(i))
	}
	e.endParameter()
}

func (e *encoder) int4s(n int, value func(i int) int32) {
	e.array(oidInt4, n)
	for i := range n {
		e.int4(value(i))
	}
	e.endParameter()
}

func (e *encoder) int8s(n int, value func(i int) int64) {
	e.array(oidInt8, n)
	for i := range n {
		e.int8(value(i))
	}
	e.endParameter()
}

func (e *encoder) runs(n int, value func(i int) model.RunID) {
	e.array(oidUUID, n)
	for i := range n {
		v := value(i)
		e.buf = append(append(e.buf, 0, 0, 0, 16), v[:]...)
	}
	e.endParameter()
}

func (e *encoder) texts(n int, value func(i int) string) {
	e.array(oidText, n)
	for i := range n {
		v := value(i)
		e.buf = append(binary.BigEndian.AppendUint32(e.buf, uint32(len(v))), v...)
	}
	e.endParameter()
}

// bodies appends encoded values. Nil becomes null.
func (e *encoder) bodies(n int, value func(dst []byte, i int) []byte) {
	e.array(oidBytea, n)
	for i := range n {
		e.body(func(dst []byte) []byte { return value(dst, i) })
	}
	e.endParameter()
}
