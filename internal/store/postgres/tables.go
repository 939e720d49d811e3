package postgres

import (
	"maps"
	"slices"
)

// hotTables are the tables that grow with the work, and the column of each by which a distributed
// PostgreSQL would divide it.
var hotTables = map[string]string{
	"executions": "shard", "runnable": "shard", "history": "shard", "timers": "shard", "inbox": "shard", "requests": "shard", "garbage": "shard",
	"labels": "shard", "dead": "shard", "task_data": "shard", "task_logs": "shard", "leaving": "shard", "entities": "shard", "mailbox": "shard",
	"messages": "to_shard", "cursors": "to_shard",
}

// smallTables stay on one server, because they do not grow with the number of executions.
var smallTables = []string{
	"meta", "migrations", "nodes", "fences", "shards", "settings", "settings_counter", "peer_mail", "audit", "remote_workers", "replay_reports",
}

// ownTables returns the names of all tables of a store. The schema may also have tables of other
// programs.
func ownTables() []string { return slices.Concat(slices.Sorted(maps.Keys(hotTables)), smallTables) }
