package model

import (
	"fmt"
	"strconv"
	"strings"
)

// EntityVersion names one state of an entity. The number alone is not enough: when the row of an
// entity has been removed, the next row starts at 1 again.
type EntityVersion struct {
	Number int64
	// Changed is the time of the change; zero in a version that a client has given without a time.
	Changed Time
}

// VersionNow returns the version that the entity has now. An entity without a row has version 0.
func (n *Entity) VersionNow() EntityVersion {
	if n.Empty() {
		return EntityVersion{}
	}
	return EntityVersion{n.Version, n.Changed}
}

// String returns the version as clients have it, such as 3-1789000000000000.
func (v EntityVersion) String() string {
	if v.Changed == 0 {
		return strconv.FormatInt(v.Number, 10)
	}
	return fmt.Sprintf("%d-%d", v.Number, v.Changed)
}

// Fits reports whether a state has the expected version v.
func (v EntityVersion) Fits(has EntityVersion) bool {
	return v.Number == has.Number && (v.Changed == 0 || v.Changed == has.Changed)
}

// ParseEntityVersion reads a version: the number, or the number and the time.
func ParseEntityVersion(text string) (v EntityVersion, ok bool) {
	number, changed, exact := strings.Cut(text, "-")
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return v, false
	}
	v.Number = int64(n)
	if !exact {
		return v, true
	}
	at, err := strconv.ParseUint(changed, 10, 63)
	v.Changed = Time(at)
	return v, err == nil && at != 0 && n != 0
}
