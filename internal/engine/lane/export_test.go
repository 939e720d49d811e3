package lane

// Waiters is the number of addresses that somebody waits for.
func (l *Lane) Waiters() int { return len(l.waiters) }
