package lane

// Waiters is the number of addresses that somebody waits for.
func (l *Lane) Waiters() int { return len(l.waiters) }

// Queries is the number of questions that nobody has answered.
func (l *Lane) Queries() int { return len(l.queries) }

// Entries is the number of addresses in memory.
func (l *Lane) Entries() int { return len(l.entries) }

// Watchers is the number of addresses that somebody listens to.
func (l *Lane) Watchers() int { return len(l.watchers) }
