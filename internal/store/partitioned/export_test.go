package partitioned

// Registrations returns how many nodes the store keeps as registered by this process.
func (s *Store) Registrations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.nodes)
}
