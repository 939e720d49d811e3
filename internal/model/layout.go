package model

import (
	"fmt"
	"strconv"
	"strings"
)

// DefaultGroup is the shard group of every name that does not choose another group.
const DefaultGroup = "default"

// Bounds of shard groups: how many groups a store may have in addition to the default one, and how
// many bytes the name of a group may have.
const (
	MaxGroups    = 64
	maxGroupName = 32
)

// groupMark separates a name from the shard group that it chooses, as in render@gpu.
const groupMark = "@"

// Group is a named part of the shards of a store.
type Group struct {
	Name   string
	Shards int
}

// Layout says which shards belong to which group, and so to which shard an address belongs. It
// depends only on data in the store. So all processes compute the same shard for an address, even
// if they do not have the code of that address.
//
// The name of a workflow, entity or service chooses a group with its ending: render@gpu belongs to
// the group gpu, if the store has a group of that name. All other names belong to the default
// group. The shards of the default group come first. The shards of the other groups follow in the
// order in which the groups were added. So a new group does not move the addresses of other groups.
type Layout struct {
	base   int // shards of the default group
	groups []Group
}

// NewLayout returns the layout of a store with this total number of shards. The groups are all
// groups except the default one, in the order in which they were added.
func NewLayout(shards int, groups []Group) Layout {
	for i := range groups {
		shards -= groups[i].Shards
	}
	return Layout{base: max(shards, 0), groups: groups}
}

// Shard returns the shard of an address. The shard of an address never changes during the life of a
// store.
func (l Layout) Shard(a Address) ShardID {
	if len(l.groups) == 0 {
		return a.Shard(l.base)
	}
	r := l.rangeOf(a.Type)
	return ShardID(r.First) + a.Shard(r.Count)
}

// GroupRange is a group with its shards: the Count shards from First on.
type GroupRange struct {
	Group        string
	First, Count int
}

// Ranges returns all groups, the default one first.
func (l Layout) Ranges() []GroupRange {
	all := append(make([]GroupRange, 0, len(l.groups)+1), GroupRange{DefaultGroup, 0, l.base})
	first := l.base
	for i := range l.groups {
		all = append(all, GroupRange{l.groups[i].Name, first, l.groups[i].Shards})
		first += l.groups[i].Shards
	}
	return all
}

// GroupOf returns the group of a shard.
func (l Layout) GroupOf(s ShardID) string {
	end := l.base
	for i := range l.groups {
		if int(s) < end {
			break
		}
		if end += l.groups[i].Shards; int(s) < end {
			return l.groups[i].Name
		}
	}
	return DefaultGroup
}

// HasGroup reports whether the store has a group.
func (l Layout) HasGroup(name string) bool {
	for i := range l.groups {
		if l.groups[i].Name == name {
			return true
		}
	}
	return name == DefaultGroup
}

// rangeOf returns the group that a name chooses.
func (l Layout) rangeOf(name string) GroupRange {
	if at := strings.LastIndex(name, groupMark); at >= 0 {
		first := l.base
		for i := range l.groups {
			if l.groups[i].Name == name[at+len(groupMark):] {
				return GroupRange{l.groups[i].Name, first, l.groups[i].Shards}
			}
			first += l.groups[i].Shards
		}
	}
	return GroupRange{DefaultGroup, 0, l.base}
}

// MayChooseGroup reports whether the name of a workflow, entity or service has the form that
// chooses a shard group. Whether the store has that group is another question.
func MayChooseGroup(name string) bool { return strings.Contains(name, groupMark) }

// GroupEnding returns the ending of all names that choose a group.
func GroupEnding(group string) string { return groupMark + group }

// FormatGroups returns the stored form of groups: gpu=64,video=32.
func FormatGroups(groups []Group) string {
	parts := make([]string, len(groups))
	for i := range groups {
		parts[i] = groups[i].Name + "=" + strconv.Itoa(groups[i].Shards)
	}
	return strings.Join(parts, ",")
}

// ParseGroups reads the stored form of groups, which people also write.
func ParseGroups(text string) ([]Group, error) {
	if text == "" {
		return nil, nil
	}

	var groups []Group
	total := 0
	for part := range strings.SplitSeq(text, ",") {
		name, number, cut := strings.Cut(part, "=")
		count, err := strconv.Atoi(number)
		if !cut || err != nil || number != strconv.Itoa(count) {
			return nil, fmt.Errorf("%.60q is not a shard group of the form name=shards", part)
		}
		if err := CheckGroupName(name); err != nil {
			return nil, err
		}
		if total += count; count < 1 || count > MaxShards || total > MaxShards {
			return nil, fmt.Errorf("shard group %s has %d shards: a group has at least 1, and all groups together at most %d", name, count, MaxShards)
		}
		for i := range groups {
			if groups[i].Name == name {
				return nil, fmt.Errorf("shard group %s is there twice", name)
			}
		}
		if groups = append(groups, Group{name, count}); len(groups) > MaxGroups {
			return nil, fmt.Errorf("more than %d shard groups", MaxGroups)
		}
	}
	return groups, nil
}

// CheckGroupName returns what is wrong with the name of a new shard group; nil when it is valid.
func CheckGroupName(name string) error {
	if name == DefaultGroup {
		return fmt.Errorf("every store has the shard group %s: it cannot be added", DefaultGroup)
	}
	ok := name != "" && len(name) <= maxGroupName && name[0] >= 'a' && name[0] <= 'z'
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if !ok {
		return fmt.Errorf("%.60q is not the name of a shard group: it has 1 to %d lower-case letters, digits and dashes, and begins with a letter", name, maxGroupName)
	}
	return nil
}
