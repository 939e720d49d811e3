package model

import (
	"bytes"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
)

// Address names an execution, an entity or a service. Only the owner of the shard of an address may
// change the execution or entity at the address.
type Address struct {
	Tenant string `cbor:"1,keyasint,omitempty"`
	Type   string `cbor:"2,keyasint,omitempty"` // the name of a workflow, or a prefix and another name
	Key    string `cbor:"3,keyasint,omitempty"`
}

// String returns the address as users write it, for logs and errors: workflow/key, or account "key"
// for an entity. A tenant other than the default one comes first.
func (a Address) String() string {
	text := a.Type + "/" + a.Key
	for _, prefix := range [...]string{EntityPrefix, ServicePrefix} {
		if name, ok := strings.CutPrefix(a.Type, prefix); ok {
			text = name + " " + strconv.Quote(a.Key)
		}
	}
	if a.Tenant == DefaultTenant || a.Tenant == "" {
		return text
	}
	return a.Tenant + "/" + text
}

// Path returns tenant/type/key. The engine uses it to recognise repeated requests, so this form
// must never change.
func (a Address) Path() string { return a.Tenant + "/" + a.Type + "/" + a.Key }

// IsZero reports whether the address names nothing.
func (a Address) IsZero() bool { return a == Address{} }

// ShardID is a slice of the address space.
type ShardID uint16

// MaxShards bounds the shard count of a cluster.
const MaxShards = 4096

// Shard returns the shard of the address in a cluster of n shards: FNV-1a (64 bit) over the
// length-prefixed parts, mixed once more and reduced to n. It is part of the stored format: the
// count and this function never change for the life of a store.
func (a Address) Shard(n int) ShardID {
	h := uint64(14695981039346656037)
	for _, part := range [...]string{a.Tenant, a.Type, a.Key} {
		for size, i := uint32(len(part)), 0; i < 4; i++ {
			h = (h ^ uint64(byte(size>>(8*i)))) * 1099511628211
		}
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return ShardID(h % uint64(n))
}

// RunID identifies one run of an execution: a UUIDv7, so ids sort by creation.
type RunID [16]byte

// NodeID identifies one incarnation of a process that runs the engine.
type NodeID [16]byte

// ReportID identifies a replay report: a UUIDv7, so ids sort by creation.
type ReportID [16]byte

var idText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// String returns run_ and 26 characters.
func (id RunID) String() string { return "run_" + idText.EncodeToString(id[:]) }

// IsZero reports whether the id names no run.
func (id RunID) IsZero() bool { return id == RunID{} }

// Compare orders ids by their bytes, as the stores do.
func (id RunID) Compare(other RunID) int { return bytes.Compare(id[:], other[:]) }

// ParseRunID reads the text form.
func ParseRunID(s string) (RunID, error) {
	var id RunID
	err := parseID(s, "run_", id[:])
	return id, err
}

// String returns node_ and 26 characters.
func (id NodeID) String() string { return "node_" + idText.EncodeToString(id[:]) }

// IsZero reports whether the id names no node.
func (id NodeID) IsZero() bool { return id == NodeID{} }

// ParseNodeID reads the text form.
func ParseNodeID(s string) (NodeID, error) {
	var id NodeID
	err := parseID(s, "node_", id[:])
	return id, err
}

// String returns report_ and 26 characters.
func (id ReportID) String() string { return "report_" + idText.EncodeToString(id[:]) }

// IsZero reports whether the id names no report.
func (id ReportID) IsZero() bool { return id == ReportID{} }

// Compare orders ids by their bytes, as the stores do.
func (id ReportID) Compare(other ReportID) int { return bytes.Compare(id[:], other[:]) }

// ParseReportID reads the text form.
func ParseReportID(s string) (ReportID, error) {
	var id ReportID
	err := parseID(s, "report_", id[:])
	return id, err
}

// parseID reads a prefix and 26 characters.
func parseID(s, prefix string, into []byte) error {
	body, ok := strings.CutPrefix(s, prefix)
	if !ok || len(body) != 26 {
		return fmt.Errorf("%q is not an id of the form %s and 26 characters", s, prefix)
	}
	raw, err := idText.DecodeString(body)
	if err != nil || idText.EncodeToString(raw) != body {
		return fmt.Errorf("%q is not an id of the form %s and 26 characters", s, prefix)
	}
	copy(into, raw)
	return nil
}
