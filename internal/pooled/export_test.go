package pooled

// Holds reports whether a connection has a buffer.
func (c *Conn) Holds() bool { return c.shared != nil || c.rest != nil }
