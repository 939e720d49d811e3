package flovyn

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Prefix is the prefix of the type of the executions of this protocol, and of the names of their
// task queues. The name of the queue follows the prefix, because workers poll by queue.
const Prefix = model.FlovynPrefix

// defaultQueue is the queue of a request that names none.
const defaultQueue = "default"

// flowAddress is the address of an execution.
func flowAddress(tenant, queue, id string) model.Address {
	return model.Address{Tenant: tenant, Type: Prefix + queue, Key: id}
}

// taskAddress is the address of a task.
func taskAddress(tenant, kind, id string) model.Address {
	return model.Address{Tenant: tenant, Type: model.TaskPrefix + kind, Key: id}
}

// queueOf returns the queue of an execution.
func queueOf(a model.Address) string { return strings.TrimPrefix(a.Type, Prefix) }

// newID returns a new id for an execution or a task. Ids sort by the time of their creation.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// parseID returns an id in its canonical form.
func parseID(what, text string) (string, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return "", fault.New(fault.Invalid, "the id of the %s is %.80q, must be a UUID", what, text)
	}
	return id.String(), nil
}

// isCounted reports whether an id of a task or a child is the id of its workflow plus a number. The
// native core of the older dialect makes such ids. In each activation it counts from 0 again
// without counting tasks that the log already has, so two tasks of a workflow may get the same id.
func isCounted(execution, id string) bool {
	base, err := uuid.Parse(execution)
	own, err2 := uuid.Parse(id)
	if err != nil || err2 != nil {
		return false
	}
	low, borrow := bits.Sub64(binary.BigEndian.Uint64(own[8:]), binary.BigEndian.Uint64(base[8:]), 0)
	high, _ := bits.Sub64(binary.BigEndian.Uint64(own[:8]), binary.BigEndian.Uint64(base[:8]), borrow)
	return high == 0 && low < maxCommands
}

// stepID returns an id for the n-th task or child that a workflow asks for, if the worker cannot
// generate one.
func stepID(execution, kind string, n int) string {
	base, err := uuid.Parse(execution)
	if err != nil { // no worker of the protocol has such an execution
		return newID()
	}
	return uuid.NewSHA1(base, fmt.Appendf(nil, "%s%d", kind, n)).String()
}

// The id of a promise contains most of the id of its execution, so that no table is needed to find
// the execution. Both ids have the same first twelve bytes, and the last four depend on the number
// of the promise.

// promiseID returns the id of the n-th promise of an execution. n counts from 1.
func promiseID(execution string, n int) string {
	id, err := uuid.Parse(execution)
	if err != nil { // another client of the engine started the execution
		sum := sha256.Sum256([]byte(execution))
		copy(id[:], sum[:])
	}
	last := binary.BigEndian.Uint32(id[12:])
	binary.BigEndian.PutUint32(id[12:], last^uint32(n))
	return id.String()
}

// promisePrefix returns the beginning of the id of the execution of a promise.
func promisePrefix(promise string) string { return promise[:28] }

// workerID returns the id of a worker. The same name always gets the same id, and isWorkerID
// recognizes such ids. So the door needs no table of workers.
func workerID(tenant, name string) string {
	var id uuid.UUID
	first := sha256.Sum256([]byte("worker\x00" + tenant + "\x00" + name))
	copy(id[:8], first[:8])
	id[6] = id[6]&0x0f | 0x80 // version 8: bits of our own
	seal := sha256.Sum256(append([]byte("worker id\x00"+tenant+"\x00"), id[:8]...))
	copy(id[8:], seal[:8])
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// isWorkerID reports whether workerID has made an id for a tenant.
func isWorkerID(tenant, text string) bool {
	id, err := uuid.Parse(text)
	if err != nil {
		return false
	}
	seal := sha256.Sum256(append([]byte("worker id\x00"+tenant+"\x00"), id[:8]...))
	seal[0] = seal[0]&0x3f | 0x80
	return string(id[8:]) == string(seal[:8])
}
