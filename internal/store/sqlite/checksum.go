package sqlite

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A stored body is the encoded value followed by 4 bytes: the CRC-32C of the other columns of its
// row and of the value. SQLite detects a flipped bit only in the structure of its pages. The
// checksum detects a flipped bit in the data of users, and a row under the wrong key.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumSize = 4

// seal appends the checksum of a body. The body is the part of data from the position begin to the
// end.
func seal(data []byte, begin int, columns []byte) []byte {
	sum := crc32.Update(crc32.Checksum(columns, castagnoli), castagnoli, data[begin:])
	return binary.LittleEndian.AppendUint32(data, sum)
}

// unseal checks and removes the checksum. It returns an error if the row or the body has changed.
func unseal(columns, sealed []byte) ([]byte, error) {
	if len(sealed) < sumSize {
		return nil, fmt.Errorf("its body has %d bytes, too few for a checksum", len(sealed))
	}
	body, tail := sealed[:len(sealed)-sumSize], sealed[len(sealed)-sumSize:]
	if sum := crc32.Update(crc32.Checksum(columns, castagnoli), castagnoli, body); sum != binary.LittleEndian.Uint32(tail) {
		return nil, fmt.Errorf("its checksum does not match")
	}
	return body, nil
}

// The functions below write the columns that a checksum includes, by table. The first byte differs
// for each column that has bodies, so that a body of one column cannot be read as a body of
// another.

func appendNumber(dst []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(n))
}

// appendText writes the length in front, so that two texts never run together: "ab","c" differs
// from "a","bc".
func appendText(dst []byte, s string) []byte { return append(appendNumber(dst, int64(len(s))), s...) }

func appendAddress(dst []byte, a model.Address) []byte {
	return appendText(appendText(appendText(dst, a.Tenant), a.Type), a.Key)
}

// appendRun writes a tag, which says what the body is, and the key of a run.
func appendRun(dst []byte, tag byte, k store.RunKey) []byte {
	return binary.LittleEndian.AppendUint16(append(append(dst, tag), k.Run[:]...), uint16(k.Shard))
}

func startColumns(dst []byte, k store.RunKey, a model.Address, at model.Time) []byte {
	return appendAddress(appendNumber(appendRun(dst, 's', k), int64(at)), a)
}

func outcomeColumns(dst []byte, k store.RunKey, status model.Status, at model.Time) []byte {
	return append(appendNumber(appendRun(dst, 'o', k), int64(at)), byte(status))
}

func waitsColumns(dst []byte, k store.RunKey) []byte   { return appendRun(dst, 'w', k) }
func blockedColumns(dst []byte, k store.RunKey) []byte { return appendRun(dst, 'b', k) }

func eventColumns(dst []byte, k store.RunKey, e *model.Event) []byte {
	return append(appendNumber(appendNumber(appendRun(dst, 'e', k), e.Seq), int64(e.At)), byte(e.Kind))
}

func messageColumns(dst []byte, to, from model.ShardID, seq int64) []byte {
	return appendNumber(appendNumber(appendNumber(append(dst, 'm'), int64(to)), int64(from)), seq)
}

func inboxColumns(dst []byte, shard model.ShardID, id model.RunID) []byte {
	return appendRun(dst, 'i', store.RunKey{Shard: shard, Run: id})
}

func requestColumns(dst []byte, k store.RequestKey, at model.Time) []byte {
	return appendText(appendAddress(appendNumber(appendNumber(append(dst, 'r'), int64(k.Shard)), int64(at)), k.Address), k.ID)
}

func deadSum(dst []byte, k store.DeadKey, requeued int64, c store.DeadColumns) []byte {
	dst = appendText(appendNumber(appendNumber(appendRun(dst, 'd', k.RunKey), requeued), int64(c.At)), k.Task)
	return appendText(appendText(appendText(appendText(dst, c.Tenant), c.Kind), c.Queue), c.Fingerprint)
}

func datumSum(dst []byte, d *store.TaskDatum) []byte {
	return appendText(appendText(appendRun(dst, 't', d.RunKey), d.Task), d.Name)
}

func logSum(dst []byte, l *store.LogRow) []byte {
	dst = appendNumber(appendNumber(appendNumber(appendRun(dst, 'l', l.RunKey), int64(l.At)), l.Epoch), l.Batch)
	return appendText(appendNumber(appendNumber(dst, int64(l.N)), int64(l.Level)), l.Task)
}

//arch:parameters they are the columns of the row, which a reader has before it has the entity
func entitySum(dst []byte, k store.EntityKey, version int64, changed model.Time, locked bool) []byte {
	dst = appendNumber(appendNumber(appendNumber(append(dst, 'n'), int64(k.Shard)), version), int64(changed))
	return appendAddress(appendNumber(dst, flag(locked)), k.Address)
}

func itemSum(dst []byte, k store.MailboxKey, at model.Time) []byte {
	return appendAddress(appendNumber(appendNumber(appendNumber(append(dst, 'x'), int64(k.Shard)), k.Seq), int64(at)), k.Address)
}

func settingSum(dst []byte, k store.SettingKey, version int64, at model.Time) []byte {
	return appendText(appendText(appendText(appendNumber(appendNumber(append(dst, 'c'), version), int64(at)), k.Tenant), k.Kind), k.Name)
}

// reportSum takes the tag of the column, because a report has two bodies.
func reportSum(dst []byte, column byte, r *store.ReportRow) []byte {
	return appendText(appendText(append(appendRun(dst, 'p', store.RunKey{Run: model.RunID(r.ID)}), column), r.Tenant), r.Request)
}

func auditSum(dst []byte, r *store.AuditRow) []byte {
	return appendText(appendNumber(appendRun(dst, 'a', store.RunKey{Run: r.ID}), flag(r.Final)), r.Tenant)
}
